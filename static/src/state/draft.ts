// How the reducer's functions find and replace rows in the state that they build.

import type { Row, ToolRow } from "./rows";
import type { SessionState } from "./session";

/** The state while a batch is applied: its arrays are this batch's own, its rows are not. */
export type Draft = SessionState;

/** The index of the newest row that fits, or -1. Searched from the end, where nearly all rows that change are. */
export function findRow(draft: Draft, fits: (row: Row) => boolean): number {
  return draft.rows.findLastIndex(fits);
}

/** Replaces the row with this row's key, or appends it. */
export function putRow(draft: Draft, row: Row): void {
  const index = findRow(draft, (other) => other.key === row.key);
  if (index < 0) draft.rows.push(row);
  else draft.rows[index] = row;
}

export function removeRow(draft: Draft, key: string): void {
  const index = findRow(draft, (row) => row.key === key);
  if (index >= 0) draft.rows.splice(index, 1);
}

/** The tool call that an event belongs to: by its item, or by the action that caused it. */
export function findTool(draft: Draft, event: { item?: string; cause?: number }): ToolRow | undefined {
  const index = findRow(
    draft,
    (row) =>
      row.kind === "tool" &&
      ((event.item !== undefined && row.item === event.item) || (event.cause !== undefined && row.seq === event.cause)),
  );
  return draft.rows[index] as ToolRow | undefined;
}

/** Closes what is still open, because whatever worked on it has ended. */
export function settle(draft: Draft, at: string): void {
  draft.rows = draft.rows.flatMap((row): Row[] => {
    if ((row.kind === "text" || row.kind === "thinking") && row.open) return [{ ...row, open: false, partial: true }];
    if (row.kind !== "tool" || row.end) return [row];
    // A call that the model never finished writing did not happen.
    if (row.seq === null) return [];
    const end = { outcome: "stopped" as const, at, content: row.output.text, extras: {}, durationMs: null };
    return [{ ...row, end }];
  });
}
