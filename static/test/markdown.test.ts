import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { Marked } from "marked";
import { advance, expectGrowth, noBlocks } from "../src/markdown/blocks";
import { render, sanitize } from "../src/markdown/render";
import { shortcuts } from "../src/markdown/shortcuts";

const LINK = 'target="_blank" rel="noopener noreferrer nofollow"';

function check(markdown: string, expected: string): void {
  assert.equal(render(markdown).trim(), expected);
}

test("what a message may hold", () => {
  check("**bold** and `code`", "<p><strong>bold</strong> and <code>code</code></p>");
  check("[site](https://example.org)", `<p><a href="https://example.org" ${LINK}>site</a></p>`);
  check("```rust\nfn f() {}\n```", '<pre><code class="language-rust">fn f() {}\n</code></pre>');
  assert.match(render("- [x] done"), /<input (?=[^>]*checked)(?=[^>]*disabled)[^>]*type="checkbox"/);
  assert.match(render("|a|\n|:-:|\n|b|"), /<td align="center">b<\/td>/);
});

test("HTML is shown, not obeyed", () => {
  check("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>");
  check("a <b onclick='x()'>bold</b> one", "<p>a &lt;b onclick='x()'&gt;bold&lt;/b&gt; one</p>");
  check("one<br>two<br/>three", "<p>one<br>two<br>three</p>");
  check("[x](javascript:alert(1))", `<p><a ${LINK}>x</a></p>`);
  check("[x](  JaVaScRiPt:alert(1))", `<p><a ${LINK}>x</a></p>`);
  check("[x](data:text/html,<script>alert(1)</script>)", `<p><a ${LINK}>x</a></p>`);
  check("[x](/api/sessions/1/files/evil.html)", `<p><a ${LINK}>x</a></p>`);
  check("![pic](https://example.org/p.png)", `<p><a href="https://example.org/p.png" ${LINK}>pic</a></p>`);
});

test("with its shortcuts the parser finds the same", () => {
  const pieces = ["a", "b c", "\n", "\n\n", " ", "    ", "\t", "\r", "> ", "| a | b |", "|-|:-:|", "===", "---", "- ", "1. ", "# ", "<b>", "<div>", "```", "`c` d", "**e** f", "_", "é", "[a]: /x"];
  const [plain, quick] = [new Marked({ gfm: true }), new Marked({ gfm: true }, shortcuts)];
  let seed = 1;
  const random = (below: number) => (seed = (seed * 48_271) % 2_147_483_647) % below;
  for (let n = 0; n < 20_000; n += 1) {
    const text = Array.from({ length: 1 + random(12) }, () => pieces[random(pieces.length)]).join("");
    assert.deepEqual(quick.lexer(text), plain.lexer(text), JSON.stringify(text));
  }
});

test("what got past the parser is taken away", () => {
  const clean = (html: string, expected: string) => assert.equal(sanitize(html), expected);
  clean("<script>alert(1)</script>", "");
  clean('<img src=x onerror="alert(1)">', "");
  clean('<p onclick="alert(1)">hi</p>', "<p>hi</p>");
  clean("<svg><animate onbegin=alert(1)></svg>", "");
  clean('<iframe src="https://example.org"></iframe>', "");
  clean('<form action="/api/sessions"><button>go</button></form>', "go");
  clean('<div style="position:fixed">x</div>', "x");
  clean('<p id="app" class="dialog">x</p>', "<p>x</p>");
  clean('<code class="dialog language-js">x</code>', "<code>x</code>");
  clean('<input type="password">', "");
});

test("text that grows looks in the end as if it had come at once", () => {
  const text = "# Title\n\nOne *two*\nthree, as [there][1].\n\n[1]: https://example.org\n\n- a\n\n- b\n  - c\n\n```js\nlet x = 1;\n\nlet y;\n```\n\nEnd.\r\n\r\nReally.\n";
  let blocks = noBlocks;
  for (let end = 1; end <= text.length; end += 1) blocks = advance(blocks, text.slice(0, end), true);
  blocks = advance(blocks, text, false);
  const flat = (html: string) => html.replace(/\n+/g, "\n").trim();
  assert.equal(flat(blocks.parts.flat().join("")), flat(render(text)));
  assert.equal(blocks.tail, "");
});

test("finished blocks are not rendered again", () => {
  const before = advance(noBlocks, "One.\n\nTwo", true);
  assert.deepEqual(before.parts, [["<p>One.</p>\n"]]);
  const after = advance(before, "One.\n\nTwo and", true);
  assert.equal(after.parts, before.parts, "the same array, so nothing is drawn again");
  assert.equal(after.tail, "<p>Two and</p>\n");
  let many = before;
  for (let n = 2; n <= 40; n += 1) many = advance(many, "One.\n\n".repeat(n), true);
  const more = advance(advance(many, "One.\n\n".repeat(41), true), "One.\n\n".repeat(42), true);
  assert.equal(more.parts.flat().length, 41);
  assert.equal(more.parts[0], many.parts[0], "a part that is full stays as it is");
});

test("a flood of beginnings takes no longer than any other text", () => {
  const count = (markdown: string, tag: RegExp) => advance(noBlocks, markdown, false).parts.flat().join("").match(tag)?.length;
  assert.equal(count("[\n".repeat(32_768), /<p>/g), 1);
  assert.equal(count("a\n# b\n".repeat(4_000), /<h1>/g), 4_000);
});

test("half-written marks do not flicker, and other text starts afresh", async () => {
  await expectGrowth();
  assert.equal(advance(noBlocks, "so **bol", true).tail, "<p>so <strong>bol</strong></p>\n");
  const other = advance(advance(noBlocks, "One.\n\nTwo", true), "Else", true);
  assert.deepEqual([other.parts, other.tail], [[], "<p>Else</p>\n"]);
});
