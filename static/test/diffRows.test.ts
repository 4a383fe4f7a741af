// Diffs as rows of a table, inline and side by side.

import assert from "node:assert/strict";
import { test } from "node:test";
import { diffTable, type DiffTableRow } from "../src/changes/diffRows";

const DIFF = `@@ -1,4 +1,4 @@ fn main
 one
-two
-three
+2
 four
@@ -9 +9,2 @@
-nine
\\ No newline at end of file
+9
+10
`;

/** Returns the rows in short form: old and new number with the text. */
function textOf(rows: readonly DiffTableRow[]): string[] {
  return rows.map((row) => {
    if (row.kind === "place") return row.isHunk ? "@@" : row.text;
    return [row.old, row.new].map((cell) => (cell ? `${cell.number}${cell.kind === "same" ? "" : cell.kind[0]}:${cell.text}` : "")).join("|");
  });
}

test("inline rows have both numbers in the order of the diff", () => {
  assert.deepEqual(textOf(diffTable(DIFF).inline), [
    "@@", "1:one|1:one", "2r:two|", "3r:three|", "|2a:2", "4:four|3:four",
    "@@", "9r:nine|", "\\ No newline at end of file", "|9a:9", "|10a:10",
  ]);
});

test("removed and added lines that replace each other share a row", () => {
  assert.deepEqual(textOf(diffTable(DIFF).sideBySide), [
    "@@", "1:one|1:one", "2r:two|2a:2", "3r:three|", "4:four|3:four",
    "@@", "9r:nine|", "\\ No newline at end of file", "|9a:9", "|10a:10",
  ]);
  assert.deepEqual(textOf(diffTable("@@ -1,2 +1,2 @@\n+a\n-b\n-c\n+d\n").sideBySide), ["@@", "|1a:a", "1r:b|2a:d", "2r:c|"]);
});

test("control and direction characters of a line are visible", () => {
  const [, line] = diffTable("@@ -0,0 +1 @@\n+a\u202eb\u001b[2J\n").inline;
  assert.equal(line?.kind === "line" && line.new?.text, "a\\u{202e}b\\u{1b}[2J");
});
