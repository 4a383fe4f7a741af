// What lies before the newest part of a long journal, read while that is on the screen already, and put in its place.

import type { Event } from "../wire/event";
import { getEvents } from "../wire/manage";
import { reduce, type Input } from "./reduce";
import type { Row } from "./rows";
import type { SessionState } from "./session";

const PAGE = 1000;
/** How many events are taken at once: a person who scrolls or types meanwhile must not feel it. */
const SLICE = 200;
const RETRY_MS = 1000;

/** All events up to `until`, handed to `take` slice by slice. While the server is away it is tried again. */
export async function readPast(session: string, until: number, take: (events: Event[]) => void, signal: AbortSignal): Promise<void> {
  for (let after = 0; after < until && !signal.aborted; ) {
    try {
      const { items } = await getEvents(session, after, Math.min(PAGE, until - after));
      if (items.length === 0) return;
      for (let at = 0; at < items.length; at += SLICE) {
        if (signal.aborted) return;
        take(items.slice(at, at + SLICE));
        await new Promise((resolve) => setTimeout(resolve));
      }
      after = items.at(-1)!.seq;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

/** The state as it would be, had all come in order: `past`, then what has come since. */
export function inOrder(past: SessionState, since: readonly Input[], shown: SessionState): SessionState {
  const whole = reduce(past, since);
  const known = new Map(shown.rows.map((row) => [row.key, row]));
  // What is on its way is no part of the journal: of that the screen knows all.
  return { ...whole, sending: shown.sending, rows: whole.rows.map((row) => same(row, known.get(row.key))) };
}

/** The row that is on the screen, where it says the same: then it is not drawn again. */
function same(row: Row, known: Row | undefined): Row {
  return known && JSON.stringify(known) === JSON.stringify(row) ? known : row;
}
