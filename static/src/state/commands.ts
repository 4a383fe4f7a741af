// The commands that ran in a session, as a terminal would show them.

import type { Row, ToolRow } from "./rows";

export function commandsOf(rows: readonly Row[]): ToolRow[] {
  return rows.filter((row): row is ToolRow => row.kind === "tool" && row.name === "run");
}

/** What it has printed so far. */
export function outputOf(row: ToolRow): string {
  return row.end ? row.end.content : row.output.text;
}
