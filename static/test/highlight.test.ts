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
import { highlight } from "../src/markdown/highlight";

const writes = hljs.newInstance();
for (const [name, language] of Object.entries({ css, javascript, rust, xml })) writes.registerLanguage(name, language);

test("highlighting matches the library's HTML and keeps the text", () => {
  const page = '<style>a { color: red }</style>\n<script>const a = `${b}`;\nclass C extends D {}</script><p class="x">&lt;</p>';
  for (const text of [page, readFileSync("build.mjs", "utf8"), readFileSync("src/styles/markdown.css", "utf8"), "fn f<'a>() -> &'a str {"]) {
    for (const language of ["css", "javascript", "rust", "xml"]) {
      const [code, written] = [document.createElement("code"), document.createElement("code")];
      code.className = `language-${language}`;
      code.textContent = text;
      highlight(code);
      written.innerHTML = writes.highlight(text, { language, ignoreIllegals: true }).value;
      for (const one of [code, written]) one.normalize();
      assert.equal(code.innerHTML, written.innerHTML);
      assert.equal(code.textContent, text);
    }
  }
});
