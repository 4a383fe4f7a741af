// What a tool call shows.

import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { render } from "preact";
import { Diff } from "../src/components/Diff";

/** The lines of a diff as they are shown, with their looks. */
function diff(...lines: string[]): string[] {
  const root = document.createElement("div");
  render(<Diff text={lines.map((line) => `${line}\n`).join("")} />, root);
  return [...root.querySelectorAll("pre > div")].map((line) => `${line.className}|${line.textContent}`);
}

test("of a diff nothing is left out but its head", () => {
  const shown = diff("--- a/q.sql", "+++ b/q.sql", "@@ -1,2 +1,2 @@", " select 1", "--- old", "+++ new", "@@ -9 +9 @@", "-x");
  assert.deepEqual(shown, ["place|@@ -1,2 +1,2 @@", "| select 1", "removed|--- old", "added|+++ new", "place|@@ -9 +9 @@", "removed|-x"]);
  assert.deepEqual(diff("--- old"), ["removed|--- old"], "what has no place has no head");
});
