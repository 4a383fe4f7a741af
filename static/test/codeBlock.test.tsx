// Code: lines, numbers, colours, folding and copying.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, before, test } from "node:test";
import { render, type VNode } from "preact";
import { Diff } from "../src/components/Diff";
import { FileCode } from "../src/components/FileCode";
import { Output } from "../src/components/Output";
import { ToolCall } from "../src/components/ToolCall";
import { loadLazy } from "../src/loadLazy";
import { diffLines, fileLines, newestLines, textInWholeLines, wholeLines } from "../src/state/codeText";
import { noText, type ToolRow } from "../src/state/rows";
import { press, root, settled, waitUntil } from "./testSession";

before(loadLazy);
afterEach(() => render(null, root));

async function draw(view: VNode): Promise<void> {
  render(view, root);
  await settled();
}

const code = () => root.querySelector("code")?.textContent;
const numbers = () => root.querySelector(".code-numbers")?.textContent?.split("\n");
const counted = (count: number) => Array.from({ length: count }, (_, n) => `line ${n + 1}`);

/** Records copied texts in place of a clipboard. */
function recordCopies(): string[] {
  const copied: string[] = [];
  Object.defineProperty(navigator, "clipboard", { configurable: true, value: { writeText: async (text: string) => void copied.push(text) } });
  return copied;
}

test("file has the numbers of its lines, beside the code and not in it", async () => {
  const copied = recordCopies();
  await draw(<FileCode path="src/a.rs" text={"fn a() {\n\tb();\n}\n"} />);
  assert.equal(code(), "fn a() {\n\tb();\n}\n");
  assert.deepEqual(numbers(), ["1", "2", "3"]);
  assert.equal(root.querySelector(".code-numbers")?.getAttribute("aria-hidden"), "true");
  await waitUntil(() => root.querySelector(".hljs-keyword")?.textContent === "fn");
  press("Copy");
  await settled();
  assert.deepEqual(copied, ["fn a() {\n\tb();\n}\n"]);
  assert.ok(root.querySelector("[aria-label=Copied]"));
});

test("long file is folded to whole lines and opens and folds with the focus on its button", async () => {
  const lines = counted(100);
  await draw(<FileCode path="a.txt" text={`${lines.join("\n")}\n`} />);
  assert.deepEqual(code()?.split("\n").slice(0, -1), lines.slice(0, 24));
  const button = root.querySelector<HTMLElement>(".show-all")!;
  assert.equal(button.textContent, "Show all 100 lines");
  button.focus();
  button.click();
  await settled();
  assert.deepEqual(code()?.split("\n").slice(0, -1), lines);
  assert.deepEqual([numbers()?.length, numbers()?.at(-1)], [100, "100"]);
  assert.equal(document.activeElement, button);
  assert.equal(button.textContent, "Show less");
  let scrolled = 0;
  button.scrollIntoView = () => (scrolled += 1);
  button.click();
  await settled();
  assert.deepEqual([code()?.split("\n").length, scrolled], [25, 1]);
  assert.equal(document.activeElement, button);
});

test("file of exactly the folded length has no button", async () => {
  await draw(<FileCode path="a.txt" text={counted(24).join("\n")} />);
  assert.equal(root.querySelector(".show-all"), null);
  assert.equal(numbers()?.length, 24);
});

test("control characters of a file are visible and hide nothing", async () => {
  const text = "\ufeffone\r\n\x1b]0;title\ntwo\x1b[31m\u202eeerht\u2028\rfour\x9d\n";
  await draw(<FileCode path="a.txt" text={text} />);
  assert.equal(code(), "one\n\\u{1b}]0;title\ntwo\\u{1b}[31m\\u{202e}eerht\\u{2028}\\u{d}four\\u{9d}\n");
});

test("diff has signs, old and new numbers, and no file header", async () => {
  const text = "--- a/q.sql\n+++ b/q.sql\n@@ -1,2 +1,2 @@\n select 1\n--- old\n+++ new\n@@ -99 +100,2 @@ more\n-x\n\\ No newline at end of file\n+y\n+z\n\n";
  const lines = diffLines(text).map(({ kind = "", number, sign = "", text }) => `${kind}|${number}|${sign}${text}`);
  assert.deepEqual(lines, [
    "place|       |@@ -1,2 +1,2 @@",
    "|  1   1| select 1",
    "removed|  2    |--- old",
    "added|      2|+++ new",
    "place|       |@@ -99 +100,2 @@ more",
    "removed| 99    |-x",
    "place|       |\\ No newline at end of file",
    "added|    100|+y",
    "added|    101|+z",
    "|100 102| ",
  ]);
  await draw(<Diff path="q.sql" text={text} />);
  assert.deepEqual([...root.querySelectorAll(".diff > .added")].map((run) => run.textContent), ["+++ new\n", "+y\n+z\n"]);
  await waitUntil(() => root.querySelector(".hljs-keyword")?.textContent === "select");
  assert.deepEqual(diffLines("--- old").map(({ kind }) => kind), ["removed"], "a diff without hunks has no header");
});

test("diff colours each side as a text of its own", async () => {
  // The removed line opens a comment that does not reach into the new text.
  await draw(<Diff path="a.rs" text={"@@ -1,2 +1,2 @@\n-/* old\n+let a = 1;\n let b = 2;\n"} />);
  await waitUntil(() => root.querySelectorAll(".hljs-keyword").length === 2);
  assert.equal(root.querySelector(".removed .hljs-comment")?.textContent, "/* old");
});

test("truncated text loses the lines that the cut went through, and says how much", () => {
  const whole = counted(100).join("\n");
  const cut = (head: number, tail: number) => `${whole.slice(0, head)}\n… ${whole.length - head - tail} bytes left out …\n${whole.slice(-tail)}`;
  assert.deepEqual(wholeLines(cut(18, 12), whole.length), { head: "line 1\nline 2\n", gap: "⋯ 769 B left out ⋯", tail: "line 100" });
  assert.deepEqual(wholeLines(cut(14, 12), whole.length).head, "line 1\nline 2\n", "a cut between two lines loses none");
  assert.equal(textInWholeLines(cut(18, 12), whole.length), "line 1\nline 2\n⋯ 769 B left out ⋯\nline 100");
  assert.deepEqual(fileLines(cut(18, 12), whole.length).map(({ text, number }) => `${number} ${text}`), ["1 line 1", "2 line 2", "undefined ⋯ 769 B left out ⋯", "undefined line 100"]);
  // A file that contains such a note is not taken for a truncated one.
  const forged = "a\n… 5 bytes left out …\nb";
  assert.deepEqual([wholeLines(forged, undefined), wholeLines(forged, 900)].map(({ head }) => head), [forged, forged]);
  const forgedFirst = `a\n… 5 bytes left out …\n${whole}`;
  const kept = `${forgedFirst.slice(0, 40)}\n… ${forgedFirst.length + 4 - 80} bytes left out …\n${forgedFirst.slice(-40)}`;
  assert.match(wholeLines(kept, forgedFirst.length + 4).head, /5 bytes left out/);
  // One line longer than the whole part stays, marked as cut.
  const long = wholeLines(`${"a".repeat(10)}\n… 80 bytes left out …\n${"b".repeat(10)}`, 100);
  assert.deepEqual(long, { head: "aaaaaaaaaa…", gap: "⋯ 80 B left out ⋯", tail: "…bbbbbbbbbb" });
});

test("truncated diff loses the lines beside the gap, and later numbers stay unknown until the next place", () => {
  const lines = diffLines("@@ -1,9 +1,9 @@\n a\n-b\n+c ha\n… 99 bytes left out …\nlf\n d\n@@ -50 +50 @@\n e\n");
  assert.deepEqual(lines.map(({ number, text }) => `${number}|${text}`), ["     |@@ -1,9 +1,9 @@", " 1  1|a", " 2   |b", "     |… 99 bytes left out …", "     |d", "     |@@ -50 +50 @@", "50 50|e"]);
});

test("newest lines of a flood are whole", () => {
  assert.equal(newestLines("one\ntwo\nthree", 100), "one\ntwo\nthree");
  assert.equal(newestLines("one\ntwo\nthree", 8), "three");
  assert.equal(newestLines("x".repeat(100), 8), `…${"x".repeat(8)}`);
});

test("output has the colours of the Commands tab, is folded to whole lines and copied without escapes", async () => {
  const copied = recordCopies();
  const lines = counted(60).map((line) => `\x1b[32m${line}\x1b[0m`);
  await draw(<Output text={`\x1b]0;unterminated\n${lines.join("\n")}\n`} live={false} />);
  assert.equal(root.querySelectorAll("pre.ansi .ansi-green").length, 23);
  assert.equal(root.querySelector("pre")?.textContent, `\n${counted(23).join("\n")}`);
  press("Show all 61 lines");
  await settled();
  assert.equal(root.querySelectorAll("pre.ansi .ansi-green").length, 60);
  press("Copy");
  await settled();
  assert.deepEqual(copied, [`\n${counted(60).join("\n")}`]);
});

test("read files are code, failed reads are errors with code, and other output is plain", async () => {
  const row = (more: Partial<ToolRow>): ToolRow => ({
    kind: "tool", key: "t", seq: 1, source: "agent", name: "read", args: { path: "a.rs" }, input: noText, output: noText,
    end: { outcome: "ok", at: "", content: "fn a() {}\n", extras: {}, durationMs: null }, ...more,
  });
  const open = async (shown: ToolRow) => {
    render(null, root);
    await draw(<ToolCall row={shown} />);
    root.querySelector<HTMLElement>(".tool-line")!.click();
    await settled();
  };
  await open(row({}));
  assert.deepEqual(numbers(), ["1"]);
  const end = { outcome: "failed", at: "", content: "`a.rs` does not exist; <b>list</b> it", extras: {}, durationMs: null } as const;
  await open(row({ end }));
  assert.equal(root.querySelector(".tool-error code")?.textContent, "a.rs");
  assert.equal(root.querySelector(".tool-error")?.textContent, "a.rs does not exist; <b>list</b> it");
  await open(row({ name: "write", args: { path: "b.py", content: "import os\n" }, end: { ...end, outcome: "ok", content: "" } }));
  await waitUntil(() => root.querySelector(".hljs-keyword")?.textContent === "import");
  await open(row({ name: "run", args: { command: "ls" }, end: { ...end, content: "`x`: no such file" } }));
  assert.equal(root.querySelector(".output")?.textContent, "`x`: no such file");
});
