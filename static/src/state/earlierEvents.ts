// What lies before the newest part of a long journal, read while that is on the screen already, and put in its place.

import type { Event } from "../wire/event";
import { getEvents } from "../wire/manage";
import { RequestError } from "../wire/rest";
import { reduce, type Input } from "./reduce";
import type { Row } from "./rows";
import type { SessionState } from "./session";

const PAGE = 1000;
/** How many events are taken at once: a person who scrolls or types meanwhile must not feel it. */
const SLICE = 200;
const RETRY_MS = 1000;
/** A server that has come back is noticed as soon. */
const LAST_RETRY_MS = 5000;
/** What the server itself refuses it will hardly give a moment later. */
const REFUSED_RETRY_MS = 30_000;
/** So many failures in a row are said. Fewer pass by themselves, as when a network changes. */
const SEVERAL = 3;

/** Who reads the past. */
export interface Reader {
  /** The next events, in order. */
  take(events: Event[]): void;
  /** Why they do not come, in words for a person; empty when they do again. */
  troubled(why: string): void;
}

/** All events up to `until`, slice by slice. While the server is away it is tried again. */
export async function readPast(session: string, until: number, reader: Reader, signal: AbortSignal): Promise<void> {
  let failures = 0;
  for (let after = 0; after < until && !signal.aborted; ) {
    const page = await getEvents(session, after, Math.min(PAGE, until - after)).catch((error: Error) => error);
    if (signal.aborted) return;
    if (page instanceof Error) {
      failures += 1;
      const isRefused = page instanceof RequestError && page.code !== undefined && page.status < 500;
      if (isRefused || failures >= SEVERAL) reader.troubled(page.message);
      const retry = Math.min(LAST_RETRY_MS, RETRY_MS * 2 ** Math.max(0, failures + 1 - SEVERAL));
      await pause(isRefused ? REFUSED_RETRY_MS : retry, signal);
      continue;
    }
    failures = 0;
    reader.troubled("");
    const { items } = page;
    if (items.length === 0) return;
    for (let at = 0; at < items.length; at += SLICE) {
      if (signal.aborted) return;
      reader.take(items.slice(at, at + SLICE));
      await pause(0, signal);
    }
    after = items.at(-1)!.seq;
  }
}

/** Ends at once where nobody waits any more. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });
}

/** The state as it would be, had all come in order: `past`, then what has come since. */
export function inOrder(past: SessionState, since: readonly Input[], shown: SessionState): SessionState {
  const whole = reduce(past, since);
  const known = new Map(shown.rows.map((row) => [row.key, row]));
  // What is on its way, and in which connection, is no part of the journal: of that the screen knows all.
  const { sending, connections } = shown;
  return { ...whole, sending, connections, rows: whole.rows.map((row) => same(row, known.get(row.key))) };
}

/** The row that is on the screen, where it says the same: then it is not drawn again. */
function same(row: Row, known: Row | undefined): Row {
  return known && JSON.stringify(known) === JSON.stringify(row) ? known : row;
}
