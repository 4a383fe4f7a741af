// Unseen characters and look-alikes of a text to approve.

import assert from "node:assert/strict";
import { test } from "node:test";
import { marksNote, visiblePieces } from "../src/approvals/visibleText";

/** Returns the text with its marked pieces in brackets. */
const marked = (text: string) => visiblePieces(text).map(({ text, kind }) => (kind ? `[${text}]` : text)).join("");

test("characters that hide or reorder text are marked", () => {
  const check = (text: string, expected: string) => assert.equal(marked(text), expected);
  check("ls -l\n\ttab", "ls -l\n\ttab");
  check("a\u200bb", "a[\\u{200b}]b");
  check("a\u202eb\u2066c", "a[\\u{202e}]b[\\u{2066}]c");
  check("a\rb", "a[\\u{d}]b");
  check("a\u001b[2Kb", "a[\\u{1b}][2Kb");
  check("a\u0008b\u0000", "a[\\u{8}]b[\\u{0}]");
  check("rm\u00a0-r", "rm[\\u{a0}]-r");
  check("a\u{e0041}b", "a[\\u{e0041}]b");
  check("👍🏽 ❤️", "👍🏽 ❤️");
});

test("look-alikes are marked, and text of other languages is not", () => {
  const check = (text: string, expected: string) => assert.equal(marked(text), expected);
  check("сurl", "[с]url");
  check("ѕυԁо", "[ѕ][υ][ԁ][о]");
  check("ｒｍ", "[ｒ][ｍ]");
  check("rm –rf", "rm [–]rf");
  check("a ∕ b", "a [∕] b");
  check("echo Привет, мир", "echo Привет, мир");
  check("echo héllo naïve 日本語 ελληνικά", "echo héllo naïve 日本語 ελληνικά");
});

test("warning counts the marks", () => {
  const note = (text: string) => marksNote(visiblePieces(text));
  assert.equal(note("ls"), null);
  assert.equal(note(`ls${"\n".repeat(9)}`), null, "a gap is no character");
  assert.equal(note("a\u200b"), "Contains 1 unseen character");
  assert.equal(note("\u200b\u200b сurl"), "Contains 2 unseen characters and 1 look-alike");
});
