// Row access for the reducers.

import { escapeInvisible } from "../escapes";
import type { EventOrigin } from "../wire/event";
import type { PlanRow, ChatRow, ToolEnd, ToolRow } from "./rows";
import type { ScreenState } from "./screenState";

/** State while a batch is applied. The batch owns its arrays, not its rows. */
export type ScreenDraft = ScreenState;

/** Changes mostly hit the newest rows. An index exists only for older ones. */
const NEWEST_ROWS = 32;

/** Index from key to row, for a batch's own array. */
const indexes = new WeakMap<ChatRow[], Map<string, number>>();

export function findRow(draft: ScreenDraft, key: string): ChatRow | undefined {
  return draft.rows[indexOf(draft, key)];
}

/**
 * Replaces the row with the same key, or adds it. Growing rows stay below the durable ones and move
 * when their event arrives. Early and late clients thus show the same order.
 */
export function putRow(draft: ScreenDraft, row: ChatRow): void {
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

/** Returns the index of the first growing row. */
function firstGrowing(rows: readonly ChatRow[]): number {
  let place = rows.length;
  while (place > 0 && isGrowing(rows[place - 1]!)) place -= 1;
  return place;
}

/** Detects a row made of deltas only, without an event. */
function isGrowing(row: ChatRow): boolean {
  return row.kind === "tool" ? row.seq === null : (row.kind === "text" || row.kind === "thinking") && row.open;
}

/** Shows a plan and folds the previous one. */
export function putPlan(draft: ScreenDraft, plan: PlanRow): void {
  const before = draft.plan && findRow(draft, draft.plan.key);
  if (before?.kind === "plan" && before.key !== plan.key) putRow(draft, { ...before, superseded: true });
  draft.plan = plan;
  putRow(draft, plan);
}

export function removeRow(draft: ScreenDraft, key: string): void {
  const index = indexOf(draft, key);
  if (index < 0) return;
  draft.rows.splice(index, 1);
  indexes.delete(draft.rows);
}

/** Returns the tool call of an event, by item or by cause. */
export function findTool(draft: ScreenDraft, event: { item?: string; cause?: number }): ToolRow | undefined {
  const byItem = event.item === undefined ? undefined : findRow(draft, `tool:${event.item}`);
  if (byItem?.kind === "tool") return byItem;
  if (event.cause === undefined) return undefined;
  return draft.rows.findLast((row): row is ToolRow => row.kind === "tool" && row.seq === event.cause);
}

/** Number of announcements kept. */
const MAX_ANNOUNCEMENTS = 4;

/** Announces a text to screen readers, except for the replayed past. */
export function announce(draft: ScreenDraft, seq: number, text: string): void {
  const past = draft.connection.phase !== "live" && draft.connections <= 1;
  if (past || text === "") return;
  draft.announcements = [...draft.announcements, { seq, text: escapeInvisible(text) }].slice(-MAX_ANNOUNCEMENTS);
}

/** Closes open rows after their work ended. With `source`, closes only that origin's calls. */
export function closeOpenRows(draft: ScreenDraft, at: string, outcome: ToolEnd["outcome"] = "stopped", source?: EventOrigin): void {
  if (!draft.rows.some(isOpen)) return;
  draft.rows = draft.rows.flatMap((row): ChatRow[] => {
    if ((row.kind === "text" || row.kind === "thinking") && row.open) return [{ ...row, open: false, partial: true }];
    if (row.kind !== "tool" || row.end || (source && row.source !== source)) return [row];
    // A call that the model never finished writing did not happen.
    if (row.seq === null) return [];
    const end = { outcome, at, content: row.output.text, extras: {}, durationMs: null };
    return [{ ...row, end }];
  });
}

function isOpen(row: ChatRow): boolean {
  return row.kind === "tool" ? row.end === null : (row.kind === "text" || row.kind === "thinking") && row.open;
}

function indexOf(draft: ScreenDraft, key: string): number {
  const { rows } = draft;
  const oldest = Math.max(0, rows.length - NEWEST_ROWS);
  for (let index = rows.length - 1; index >= oldest; index -= 1) if (rows[index]?.key === key) return index;
  if (oldest === 0) return -1;
  let index = indexes.get(rows);
  if (!index) {
    index = new Map(rows.map((row, place) => [row.key, place]));
    indexes.set(rows, index);
  }
  return index.get(key) ?? -1;
}
