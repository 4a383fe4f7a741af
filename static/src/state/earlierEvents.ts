// Earlier events of a long journal. Loaded while the newest part is already on the screen, then
// merged below it.

import type { SessionEvent } from "../wire/event";
import { getEvents } from "../wire/lazyRest";
import { RestError } from "../wire/rest";
import { reduce, type ReducerInput } from "./reduce";
import type { ChatRow } from "./rows";
import type { ScreenState } from "./screenState";

const PAGE = 1000;
/** Events per reducer step. Scrolling and typing stay smooth meanwhile. */
const SLICE = 200;
const RETRY_MS = 1000;
/** Upper bound of the delay, so a returned server is found within 5 s. */
const MAX_RETRY_MS = 5000;
/** Delay after an error of the server itself. Such an error rarely passes within a second. */
const REJECTED_RETRY_MS = 30_000;
/**
 * Consecutive failures before the error is shown. Fewer pass by themselves, for example on a
 * network change.
 */
const SHOWN_FROM_FAILURE = 3;

/** Receiver of earlier events. */
export interface EarlierEventsReader {
  /** Receives the next events, in order. */
  take(events: SessionEvent[]): void;
  /** Receives the current error text. Empty after a success. */
  failing(why: string): void;
}

/** Reads all events up to `until` in slices, with retries while the server is unreachable. */
export async function readEarlierEvents(session: string, until: number, reader: EarlierEventsReader, signal: AbortSignal): Promise<void> {
  let failures = 0;
  for (let after = 0; after < until && !signal.aborted; ) {
    const page = await getEvents(session, after, Math.min(PAGE, until - after)).catch((error: Error) => error);
    if (signal.aborted) return;
    if (page instanceof Error) {
      failures += 1;
      const isRefused = page instanceof RestError && page.code !== undefined && page.status < 500;
      if (isRefused || failures >= SHOWN_FROM_FAILURE) reader.failing(page.message);
      const retry = Math.min(MAX_RETRY_MS, RETRY_MS * 2 ** Math.max(0, failures + 1 - SHOWN_FROM_FAILURE));
      await pause(isRefused ? REJECTED_RETRY_MS : retry, signal);
      continue;
    }
    failures = 0;
    reader.failing("");
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

/** Waits. Returns early after an abort. */
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

/** Returns the state as if all inputs had arrived in order: `past`, then `since`. */
export function mergeEarlier(past: ScreenState, since: readonly ReducerInput[], shown: ScreenState): ScreenState {
  const merged = reduce(past, since);
  const shownRows = new Map(shown.rows.map((row) => [row.key, row]));
  // Pending requests and connections are not in the journal. The screen holds their current values.
  const { pending, connections } = shown;
  return { ...merged, pending, connections, rows: merged.rows.map((row) => reuseRow(row, shownRows.get(row.key))) };
}

/** Returns the known row if equal, so the row is not drawn again. */
function reuseRow(row: ChatRow, known: ChatRow | undefined): ChatRow {
  return known && JSON.stringify(known) === JSON.stringify(row) ? known : row;
}
