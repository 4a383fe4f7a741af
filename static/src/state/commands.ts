// Commands of a session, for the terminal view.

import type { ChatRow, ToolRow } from "./rows";

export function commandsOf(rows: readonly ChatRow[]): ToolRow[] {
  return rows.filter((row): row is ToolRow => row.kind === "tool" && row.name === "run");
}

/** Returns the output so far. */
export function outputOf(row: ToolRow): string {
  return row.end ? row.end.content : row.output.text;
}
