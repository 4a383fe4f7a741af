// How the reducer's functions find and replace rows in the state that they build.

import { inSight } from "../escapes";
import type { Source } from "../wire/event";
import type { PlanRow, Row, ToolEnd, ToolRow } from "./rows";
import type { SessionState } from "./session";

/** The state while a batch is applied: its arrays are this batch's own, its rows are not. */
export type Draft = SessionState;

/** Nearly every row that changes is among the newest; only beyond these an index is made. */
const NEWEST = 32;

/** Where each key stands, for a batch's own array of rows. */
const indexes = new WeakMap<Row[], Map<string, number>>();

export function findRow(draft: Draft, key: string): Row | undefined {
  return draft.rows[indexOf(draft, key)];
}

/**
 * Replaces the row with this row's key, or adds it. What still grows stands below all that is in the journal, and takes its
 * place there when its event comes: so whoever was here sees the same as whoever comes later.
 */
export function putRow(draft: Draft, row: Row): void {
  const { rows } = draft;
  const index = indexOf(draft, row.key);
  const place = firstGrowing(rows);
  if (index >= 0 && (index <= place || isGrowing(row))) {
    rows[index] = row;
    return;
  }
  if (index >= 0) rows.splice(index, 1);
  if (index < 0 && (isGrowing(row) || place === rows.length)) {
    rows.push(row);
    indexes.get(rows)?.set(row.key, rows.length - 1);
    return;
  }
  rows.splice(place, 0, row);
  indexes.delete(rows);
}

/** Where the rows begin that grow, at the end of all others. */
function firstGrowing(rows: readonly Row[]): number {
  let place = rows.length;
  while (place > 0 && isGrowing(rows[place - 1]!)) place -= 1;
  return place;
}

/** Made of deltas alone: the journal knows nothing of it yet. */
function isGrowing(row: Row): boolean {
  return row.kind === "tool" ? row.seq === null : (row.kind === "text" || row.kind === "thinking") && row.open;
}

/** Shows a plan, and folds the one before away. */
export function putPlan(draft: Draft, plan: PlanRow): void {
  const before = draft.plan && findRow(draft, draft.plan.key);
  if (before?.kind === "plan" && before.key !== plan.key) putRow(draft, { ...before, superseded: true });
  draft.plan = plan;
  putRow(draft, plan);
}

export function removeRow(draft: Draft, key: string): void {
  const index = indexOf(draft, key);
  if (index < 0) return;
  draft.rows.splice(index, 1);
  indexes.delete(draft.rows);
}

/** The tool call that an event belongs to: by its item, or by the action that caused it. */
export function findTool(draft: Draft, event: { item?: string; cause?: number }): ToolRow | undefined {
  const byItem = event.item === undefined ? undefined : findRow(draft, `tool:${event.item}`);
  if (byItem?.kind === "tool") return byItem;
  if (event.cause === undefined) return undefined;
  return draft.rows.findLast((row): row is ToolRow => row.kind === "tool" && row.seq === event.cause);
}

/** How many of the newest are kept to be said. */
const SPOKEN = 4;

/** Gives a screen reader something to say, unless it is told of the past that the page opened with. */
export function speak(draft: Draft, seq: number, text: string): void {
  const past = draft.connection.phase !== "live" && draft.connections <= 1;
  if (past || text === "") return;
  draft.spoken = [...draft.spoken, { seq, text: inSight(text) }].slice(-SPOKEN);
}

/** Closes what is still open, because whatever worked on it has ended; of the calls only those of `source`, where one is named. */
export function settle(draft: Draft, at: string, outcome: ToolEnd["outcome"] = "stopped", source?: Source): void {
  if (!draft.rows.some(isOpen)) return;
  draft.rows = draft.rows.flatMap((row): Row[] => {
    if ((row.kind === "text" || row.kind === "thinking") && row.open) return [{ ...row, open: false, partial: true }];
    if (row.kind !== "tool" || row.end || (source && row.source !== source)) return [row];
    // A call that the model never finished writing did not happen.
    if (row.seq === null) return [];
    const end = { outcome, at, content: row.output.text, extras: {}, durationMs: null };
    return [{ ...row, end }];
  });
}

function isOpen(row: Row): boolean {
  return row.kind === "tool" ? row.end === null : (row.kind === "text" || row.kind === "thinking") && row.open;
}

function indexOf(draft: Draft, key: string): number {
  const { rows } = draft;
  const oldest = Math.max(0, rows.length - NEWEST);
  for (let index = rows.length - 1; index >= oldest; index -= 1) if (rows[index]?.key === key) return index;
  if (oldest === 0) return -1;
  let index = indexes.get(rows);
  if (!index) {
    index = new Map(rows.map((row, place) => [row.key, place]));
    indexes.set(rows, index);
  }
  return index.get(key) ?? -1;
}
