// Search through what was said, of the sidebar. A newer query aborts the one in flight.

import { signal } from "@preact/signals";
import { searchPassages, type FoundPassage } from "../wire/lazyRest";
import { RestError } from "../wire/rest";
import { MAX_QUERY } from "./sessionList";

/** Shortest query. A single letter is in nearly every message. */
const MIN_LENGTH = 2;
/** Delay before a typed query is sent, in milliseconds. */
const TYPING_MS = 250;
/** Delay after a rejection because of other searches, in milliseconds. */
const BUSY_RETRY_MS = 1000;
const MAX_BUSY_RETRIES = 5;

/** Results of the newest query. */
export interface ConversationSearch {
  query: string;
  items: readonly FoundPassage[];
  /** `null`: all conversations were searched. */
  cursor: string | null;
  phase: "searching" | "paused" | "failed";
  /** Reason of the failure. */
  problem: string;
  /** Number of sessions that could not be read. */
  unreadable: number;
}

/** `null` without a query. */
export const conversationSearch = signal<ConversationSearch | null>(null);

let running: AbortController | null = null;

/** Searches for a typed text, after a pause in typing. Returns a function that ends the search. */
export function searchTyped(text: string): () => void {
  stop();
  const query = queryOf(text);
  if (query === null) {
    conversationSearch.value = null;
    return stop;
  }
  conversationSearch.value = { query, items: [], cursor: null, phase: "searching", problem: "", unreadable: 0 };
  const timer = setTimeout(() => void continueSearch(), TYPING_MS);
  return () => {
    clearTimeout(timer);
    stop();
  };
}

/** Reads on, for more results or after a failure. */
export async function continueSearch(): Promise<void> {
  stop();
  const { signal } = (running = new AbortController());
  change({ phase: "searching", problem: "" });
  const known = conversationSearch.peek()?.items.length ?? 0;
  let retries = 0;
  while (!signal.aborted) {
    const { query, cursor, items, unreadable } = conversationSearch.peek()!;
    try {
      const page = await searchPassages(query, cursor, signal);
      if (signal.aborted) return;
      retries = 0;
      const found = [...items, ...page.items];
      change({ items: found, cursor: page.next_cursor, unreadable: unreadable + page.unreadable });
      // One answer reads a bounded part of the journal, which may hold no match.
      if (found.length > known || page.next_cursor === null) return change({ phase: "paused" });
    } catch (error) {
      if (signal.aborted) return;
      const isBusy = error instanceof RestError && error.status === 429 && retries < MAX_BUSY_RETRIES;
      if (!isBusy) return change({ phase: "failed", problem: (error as Error).message });
      retries += 1;
      await new Promise((resolve) => setTimeout(resolve, BUSY_RETRY_MS));
    }
  }
}

function stop(): void {
  running?.abort();
  running = null;
}

function change(to: Partial<ConversationSearch>): void {
  const now = conversationSearch.peek();
  if (now) conversationSearch.value = { ...now, ...to };
}

/** Returns the text as the server takes it. `null`: too short. */
function queryOf(text: string): string | null {
  const query = [...text.replace(/[\s\p{Cc}]+/gu, " ").trim()].slice(0, MAX_QUERY).join("").trim();
  // One character can be a word, except a letter of an alphabet.
  const isShort = [...query].length < MIN_LENGTH && !/\p{Script=Han}/u.test(query);
  return isShort ? null : query;
}
