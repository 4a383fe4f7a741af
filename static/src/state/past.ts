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
const LAST_RETRY_MS = 30_000;
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
    if (page instanceof Error) {
      failures += 1;
      const isRefused = page instanceof RequestError && page.code !== undefined && page.status < 500;
      if (isRefused || failures >= SEVERAL) reader.troubled(page.message);
      // What the server itself refuses it will hardly give a moment later.
      await pause(isRefused ? LAST_RETRY_MS : Math.min(LAST_RETRY_MS, RETRY_MS * 2 ** Math.max(0, failures + 1 - SEVERAL)));
      continue;
    }
    failures = 0;
    reader.troubled("");
    const { items } = page;
    if (items.length === 0) return;
    for (let at = 0; at < items.length; at += SLICE) {
      if (signal.aborted) return;
      reader.take(items.slice(at, at + SLICE));
      await pause(0);
    }
    after = items.at(-1)!.seq;
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
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
