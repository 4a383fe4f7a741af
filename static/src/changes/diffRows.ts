// Lines of a diff as rows of a table, inline or side by side. Pure.

import { numberedDiff, type NumberedDiffLine } from "../state/codeText";

export type DiffSide = "old" | "new";

/** Line on one side. */
export interface DiffCell {
  text: string;
  /** Number in the file of its side. */
  number: number | null;
  kind: "added" | "removed" | "same";
  /** Position among the lines of the diff. */
  at: number;
}

/** Row of the table. `place`: header of a hunk, or a note. */
export type DiffTableRow =
  | { kind: "place"; text: string; isHunk: boolean }
  /** Inline, `old` is `null` for an added line, `new` for a removed one. */
  | { kind: "line"; old: DiffCell | null; new: DiffCell | null };

/** Parsed diff of a file. */
export interface DiffTable {
  /** Texts of all lines, for the code colours. */
  lines: readonly NumberedDiffLine[];
  inline: readonly DiffTableRow[];
  /** Removed and added lines that replace each other share a row. */
  sideBySide: readonly DiffTableRow[];
}

/** Parses the hunks of a unified diff. */
export function diffTable(diff: string): DiffTable {
  const lines = numberedDiff(diff);
  const inline = lines.map((line, at): DiffTableRow => {
    if (line.kind === "place" || line.kind === "gap") return { kind: "place", text: line.text, isHunk: line.text.startsWith("@@") };
    const kind = line.kind ?? "same";
    const cell = (number: number | null): DiffCell => ({ text: line.text, number, kind, at });
    return { kind: "line", old: kind === "added" ? null : cell(line.old), new: kind === "removed" ? null : cell(line.new) };
  });
  return { lines, inline, sideBySide: paired(inline) };
}

/** Puts each run of removed lines beside the run of added lines that follows. */
function paired(rows: readonly DiffTableRow[]): DiffTableRow[] {
  const result: DiffTableRow[] = [];
  let removed: DiffCell[] = [];
  let added: DiffCell[] = [];
  const flush = () => {
    const length = Math.max(removed.length, added.length);
    for (let n = 0; n < length; n += 1) result.push({ kind: "line", old: removed[n] ?? null, new: added[n] ?? null });
    [removed, added] = [[], []];
  };
  for (const row of rows) {
    if (row.kind === "line" && row.old && !row.new) {
      if (added.length > 0) flush();
      removed.push(row.old);
    } else if (row.kind === "line" && row.new && !row.old) added.push(row.new);
    else {
      // The note on a missing line end belongs to the line above it.
      flush();
      result.push(row);
    }
  }
  flush();
  return result;
}

/** Number of lines that changed. */
export const changedLines = ({ added, removed }: { added: number | null; removed: number | null }): number => (added ?? 0) + (removed ?? 0);
