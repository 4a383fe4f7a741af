// Highlighting without HTML gives the library's own result.

import "./testWindow";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import hljs from "highlight.js/lib/core";
import css from "highlight.js/lib/languages/css";
import javascript from "highlight.js/lib/languages/javascript";
import rust from "highlight.js/lib/languages/rust";
import xml from "highlight.js/lib/languages/xml";
import { highlightLines, type CodePiece } from "../src/markdown/highlight";

const writes = hljs.newInstance();
for (const [name, language] of Object.entries({ css, javascript, rust, xml })) writes.registerLanguage(name, language);

/** Characters with the classes around them. Neighbours of the same classes are joined. */
type ClassedText = [classes: string, text: string][];

function add(to: ClassedText, classes: string, text: string): void {
  const last = to.at(-1);
  if (last?.[0] === classes) last[1] += text;
  else if (text) to.push([classes, text]);
}

function classedLine(pieces: readonly CodePiece[], classes = "", found: ClassedText = []): ClassedText {
  for (const piece of pieces) {
    if (typeof piece === "string") add(found, classes, piece);
    else classedLine(piece.pieces, `${classes}/${piece.className}`, found);
  }
  return found;
}

/** Returns the library's result, a line each. */
function libraryLines(text: string, language: string): ClassedText[] {
  const written = document.createElement("code");
  written.innerHTML = writes.highlight(text, { language, ignoreIllegals: true }).value;
  const lines: ClassedText[] = [[]];
  const walk = (node: Node, classes: string): void => {
    for (const child of node.childNodes) {
      if (child instanceof window.Element) walk(child, `${classes}/${child.className}`);
      else {
        (child.textContent ?? "").split("\n").forEach((part, n) => {
          if (n > 0) lines.push([]);
          add(lines.at(-1)!, classes, part);
        });
      }
    }
  };
  walk(written, "");
  return lines;
}

const textOf = (pieces: readonly CodePiece[]): string => pieces.map((piece) => (typeof piece === "string" ? piece : textOf(piece.pieces))).join("");

test("highlighting matches the library's HTML line by line and keeps the text", () => {
  const page = '<style>a { color: red }</style>\n<script>const a = `${b}`;\nclass C extends D {}</script><p class="x">&lt;</p>';
  for (const text of [page, readFileSync("build.mjs", "utf8"), readFileSync("src/styles/markdown.css", "utf8"), "fn f<'a>() -> &'a str {", "/* one\n\ntwo */"]) {
    for (const language of ["css", "javascript", "rust", "xml"]) {
      const lines = highlightLines(text.split("\n"), language);
      assert.deepEqual(lines.map((line) => classedLine(line)), libraryLines(text, language));
      assert.equal(lines.map(textOf).join("\n"), text);
    }
  }
});

test("highlighting is bounded: long lines and lines beyond the limit stay plain and complete", () => {
  const long = `let x = "${"y".repeat(100_000)}";`;
  const lines = ["let a = 1;", long, "let b = 2;", ...Array.from({ length: 20_000 }, () => "let c = 3;")];
  const coloured = highlightLines(lines, "js");
  assert.deepEqual(coloured.map(textOf), lines);
  const isColoured = (n: number) => coloured[n]!.some((piece) => typeof piece !== "string");
  assert.deepEqual([0, 1, 2, 3, 20_002].map(isColoured), [true, false, true, true, false]);
});

test("language is found by name and by extension", () => {
  for (const language of ["rs", "py", "ts", "tsx", "toml", "yml", "sh", "html", "h", "dockerfile"]) {
    assert.ok(highlightLines(['fn x "a" 1 # <b>'], language).length === 1, language);
  }
  assert.deepEqual(highlightLines(["fn f() {}"], "nothing-known"), [["fn f() {}"]]);
});
