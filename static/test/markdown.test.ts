import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { Marked } from "marked";
import { advance, loadMarkdownCloser, noBlocks } from "../src/markdown/blocks";
import { drawBlock } from "../src/markdown/render";
import { parseMarkdown } from "../src/markdown/fastPaths";
import { drawToElement, htmlOf, drawFinished } from "./drawMarkdown";

const LINK = 'target="_blank" rel="noopener noreferrer nofollow"';

function check(markdown: string, expected: string): void {
  assert.equal(htmlOf(drawFinished(markdown)), expected);
}

test("supported markdown", () => {
  check("**bold** and `code`", "<p><strong>bold</strong> and <code>code</code></p>");
  check("[site](https://example.org)", `<p><a href="https://example.org/" ${LINK}>site</a></p>`);
  check("```rust\nfn f() {}\n```", '<div class="code-block"><pre><code class="language-rust">fn f() {}\n</code></pre></div>');
  assert.match(htmlOf(drawFinished("- [x] done")), /<input (?=[^>]*checked)(?=[^>]*disabled)[^>]*type="checkbox"/);
  assert.match(htmlOf(drawFinished("|a|\n|:-:|\n|b|")), /<td align="center">b<\/td>/);
});

test("text direction is per paragraph, item and cell, and code is left to right", () => {
  const ways = (markdown: string) =>
    [...drawToElement(drawFinished(markdown)).querySelectorAll("p, h2, li, ul, blockquote, td, code, pre")].map(
      (element) => `${element.localName}${element.hasAttribute("dir") ? ` ${element.getAttribute("dir")}` : ""}`,
    );
  assert.deepEqual(ways("## שלום\n\nOne.\n\n`ls` הוא"), ["h2 auto", "p auto", "p auto", "code ltr"]);
  // A child with its own direction would be ignored by the item's `dir="auto"`.
  assert.deepEqual(ways("- שלום\n\n  עולם\n- one"), ["ul", "li auto", "p", "p", "li auto", "p"]);
  assert.deepEqual(ways("> שלום"), ["blockquote auto", "p"]);
  assert.deepEqual(ways("|a|\n|-|\n|שלום|"), ["td auto"]);
  assert.deepEqual(ways("```\nls\n```"), ["pre ltr", "code"]);
  assert.equal(drawToElement(advance(noBlocks, "```\nls", true).tail).querySelector("pre")?.dir, "ltr", "the same while growing");
});

test("HTML is shown as text", () => {
  check("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>");
  check("a <b onclick='x()'>bold</b> one", "<p>a &lt;b onclick='x()'&gt;bold&lt;/b&gt; one</p>");
  check("one<br>two<br/>three", "<p>one<br>two<br>three</p>");
  check("[x](javascript:alert(1))", `<p><a ${LINK}>x</a></p>`);
  check("[x](  JaVaScRiPt:alert(1))", `<p><a ${LINK}>x</a></p>`);
  check("[x](data:text/html,<script>alert(1)</script>)", `<p><a ${LINK}>x</a></p>`);
  check("[x](/api/sessions/1/files/evil.html)", `<p><a ${LINK}>x</a></p>`);
  check("![pic](https://example.org/p.png)", `<p><a href="https://example.org/p.png" ${LINK}>pic</a></p>`);
});

test("character references are decoded except in code", () => {
  check("&lt;b&gt; &amp;amp; &hellip;&#39;&#x22; \\&lt;", "<p>&lt;b&gt; &amp;amp; …'\" &amp;lt;</p>");
  check("`&lt;` &notify; &copy &none;", "<p><code>&amp;lt;</code> &amp;notify; &amp;copy &amp;none;</p>");
  check("```\n&lt;\n```", '<div class="code-block"><pre><code>&amp;lt;\n</code></pre></div>');
  check('[x](https://a.b?c&amp;d&copy=1 "&quot;t&quot;")', `<p><a href="https://a.b/?c&amp;d&amp;copy=1" title="&quot;t&quot;" ${LINK}>x</a></p>`);
  check("<https://a.b?c&amp;d>", `<p><a href="https://a.b/?c&amp;amp;d" ${LINK}>https://a.b?c&amp;amp;d</a></p>`);
  check("![a &amp; b](https://a.b?c&amp;d)", `<p><a href="https://a.b/?c&amp;d" ${LINK}>a &amp; b</a></p>`);
});

test("equal addresses in different forms lead to one address", () => {
  check("[![badge](https://a.b/i.svg) x](https://c.d)", `<p><a href="https://c.d/" ${LINK}>badge x</a></p>`);
  check("[see <https://a.b>](https://c.d)", `<p><a href="https://c.d/" ${LINK}>see https://a.b</a></p>`);
});

test("unknown syntax and too deep nesting are shown as source", () => {
  assert.equal(htmlOf([drawBlock({ type: "footnote", raw: "[^1]: <b>" }, false, [])]), '<p class="plain">[^1]: &lt;b&gt;</p>');
  const within = drawBlock({ type: "paragraph", raw: "", tokens: [{ type: "maths", raw: "<x>" }] }, false, []);
  assert.equal(htmlOf([within]), "<p>&lt;x&gt;</p>");
  const marks = ["> ", "- ", "1. ", "> - ", "[", "![", "*a **", "~~a ~"];
  const nests = marks.flatMap((mark) => [mark.repeat(300), mark.repeat(4_000)]).map((nest) => `${nest}x`);
  nests.push("**".repeat(3_000) + "x" + "**".repeat(3_000), "[".repeat(900) + "x" + "](https://a.b)".repeat(900));
  for (const nest of nests) {
    const root = drawToElement(drawFinished(nest));
    assert.match(root.textContent ?? "", /x/, nest.slice(0, 10));
    assert.ok([...root.querySelectorAll("*")].every((element) => depthOf(element) < 250), nest.slice(0, 10));
  }
  assert.match(htmlOf(advance(noBlocks, nests[1] ?? "", true).tail), /^<p class="plain">&gt; &gt;/);
});

function depthOf(node: Node | null): number {
  let depth = 0;
  for (let at = node; at; at = at.parentNode) depth += 1;
  return depth;
}

test("fast paths give the full parser's result", () => {
  const pieces = ["a", "b c", "\n", "\n\n", " ", "    ", "\t", "\r", "> ", "| a | b |", "|-|:-:|", "===", "---", "- ", "1. ", "# ", "<b>", "<div>", "```", "`c` d", "**e** f", "_", "é", "[a]: /x"];
  const plain = new Marked({ gfm: true });
  let seed = 1;
  const random = (below: number) => (seed = (seed * 48_271) % 2_147_483_647) % below;
  for (let n = 0; n < 20_000; n += 1) {
    const text = Array.from({ length: 1 + random(12) }, () => pieces[random(pieces.length)]).join("");
    assert.deepEqual(parseMarkdown(text), plain.lexer(text), JSON.stringify(text));
  }
});

test("growing text ends like text parsed at once", () => {
  const text = "# Title\n\nOne *two*\nthree, as [there][1].\n\n[1]: https://example.org\n\n- a\n\n- b\n  - c\n\n```js\nlet x = 1;\n\nlet y;\n```\n\nEnd.\r\n\r\nReally.\n";
  let blocks = noBlocks;
  for (let end = 1; end <= text.length; end += 1) blocks = advance(blocks, text.slice(0, end), true);
  blocks = advance(blocks, text, false);
  assert.equal(htmlOf(blocks.parts.flat()), htmlOf(drawFinished(text)));
  assert.deepEqual(blocks.tail, []);
});

test("finished blocks are not rendered again", () => {
  const before = advance(noBlocks, "One.\n\nTwo", true);
  assert.deepEqual(before.parts.map(htmlOf), ["<p>One.</p>"]);
  const after = advance(before, "One.\n\nTwo and", true);
  assert.equal(after.parts, before.parts, "the same array is not drawn again");
  assert.equal(htmlOf(after.tail), "<p>Two and</p>");
  let many = before;
  for (let n = 2; n <= 40; n += 1) many = advance(many, "One.\n\n".repeat(n), true);
  const more = advance(advance(many, "One.\n\n".repeat(41), true), "One.\n\n".repeat(42), true);
  assert.equal(more.parts.flat().length, 41);
  assert.equal(more.parts[0], many.parts[0], "a full group stays as is");
});

test("finished text that continues is parsed anew", () => {
  const before = advance(noBlocks, "- [ ] a", false);
  assert.equal(advance(before, "- [ ] a", false), before, "the same value is not drawn again");
  const after = advance(before, "- [ ] a\n- [x] b", false);
  assert.equal(htmlOf(after.parts.flat()), htmlOf(drawFinished("- [ ] a\n- [x] b")));
});

test("flood of block starts takes no longer than plain text", () => {
  const count = (markdown: string, tag: string) => drawToElement(drawFinished(markdown)).querySelectorAll(tag).length;
  assert.equal(count("[\n".repeat(32_768), "p"), 1);
  assert.equal(count("a\n# b\n".repeat(4_000), "h2"), 4_000);
});

test("half-written marks do not flicker and other text starts over", async () => {
  await loadMarkdownCloser();
  assert.equal(htmlOf(advance(noBlocks, "so **bol", true).tail), "<p>so <strong>bol</strong></p>");
  const other = advance(advance(noBlocks, "One.\n\nTwo", true), "Else", true);
  assert.deepEqual([other.parts, htmlOf(other.tail)], [[], "<p>Else</p>"]);
});

test("headings follow the page's own without a gap, also while a text grows", () => {
  const levels = (root: Element) => [...root.querySelectorAll("h1, h2, h3, h4, h5, h6")].map(({ localName }) => Number(localName[1]));
  const text = "### a\n\n#### b\n\n> ###### c\n\n## d\n\n##### e\n\n# f\n\ng\n=\n\n- # h\n\n## i\n\nend";
  const expected = [2, 3, 4, 2, 3, 2, 2, 2, 3];
  assert.deepEqual(levels(drawToElement(drawFinished(text))), expected);
  let blocks = noBlocks;
  for (let end = 1; end <= text.length; end += 1) {
    blocks = advance(blocks, text.slice(0, end), true);
    const found = levels(drawToElement([...blocks.parts.flat(), ...blocks.tail]));
    for (const [n, level] of found.entries()) assert.ok(level >= 2 && level <= (found[n - 1] ?? 1) + 1, `${found} of ${text.slice(0, end)}`);
  }
  const { parts, tail } = blocks;
  assert.deepEqual(levels(drawToElement([...parts.flat(), ...tail])), expected);
});
