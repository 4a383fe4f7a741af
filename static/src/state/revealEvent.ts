// Search for the row of an event, for addresses with `?at=`.

import { effect } from "@preact/signals";
import type { SessionEvent } from "../wire/event";
import { getEvents } from "../wire/lazyRest";
import type { LiveSession } from "./liveSession";
import { revealedRow } from "./revealedRow";
import type { ChatRow } from "./rows";

/** Prefixes of row keys, followed by the item or the number of an event. */
const KEY_KINDS = ["user", "text", "thinking", "tool", "plan", "summary", "notice"];

/** Returns the row that shows an event. `undefined`: no row shows it, or the row is not loaded. */
export function rowOfEvent(rows: readonly ChatRow[], event: SessionEvent): ChatRow | undefined {
  const { seq, item, cause } = event;
  const names = item === undefined ? [seq] : [item, seq];
  const keys = new Set(KEY_KINDS.flatMap((kind) => names.map((name) => `${kind}:${name}`)));
  // A delivered message stands at the row of the request that sent it.
  const isDelivery = "observation" in event && event.observation === "chat";
  const isSent = (row: ChatRow) => isDelivery && row.kind === "user" && (row.seq === cause || (item !== undefined && row.item === item));
  return rows.findLast((row) => keys.has(row.key) || isSent(row));
}

/** Returns the last row up to a time, or the first row. */
function rowAt(rows: readonly ChatRow[], at: string): ChatRow | undefined {
  return rows.findLast((row) => row.at !== undefined && row.at !== null && row.at <= at) ?? rows[0];
}

/**
 * Shows the row of event `seq`, once it is loaded, until the signal aborts. An event without a row
 * leads to the row before it. Calls `found` when the row is on the screen.
 */
export async function revealEvent(live: LiveSession, seq: number, signal: AbortSignal, found: () => void): Promise<void> {
  const { items } = await getEvents(live.id, seq - 1, 1);
  const event = items[0];
  if (signal.aborted) return;
  if (event?.seq !== seq) throw new Error(`this session has no event ${seq}`);
  const visit = {};
  const stop = effect(() => {
    const { rows } = live.state.value;
    const row = rowOfEvent(rows, event) ?? (live.isComplete ? rowAt(rows, event.at) : undefined);
    if (!row) return;
    const before = revealedRow.peek();
    if (before?.visit !== visit || before.key !== row.key) revealedRow.value = { session: live.id, key: row.key, visit };
    found();
  });
  signal.addEventListener("abort", () => {
    stop();
    if (revealedRow.peek()?.visit === visit) revealedRow.value = null;
  });
}
