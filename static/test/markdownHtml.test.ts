// Rendering without HTML gives the result of the parser's own HTML.

import "./testWindow";
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { Marked, type Token, type Tokens } from "marked";
import { drawToElement, drawFinished } from "./drawMarkdown";

const escape = (text: string) => text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);

const marked = new Marked({
  gfm: true,
  renderer: {
    html({ text, block }) {
      if (/^<br\s*\/?>$/i.test(text)) return "<br>";
      return block ? `<p>${escape(text)}</p>` : escape(text);
    },
    image: ({ href, text }) => `<a href="${escape(href)}">${escape(text || href)}</a>`,
  },
  // HTML has no links inside links.
  walkTokens(token) {
    if (token.type !== "link" || token.autolink) return;
    const flat = (inner: Token): Token =>
      inner.type === "image" || inner.type === "link" ? ({ type: "escape", raw: inner.raw, text: inner.text || inner.href } as Tokens.Escape) : inner;
    token.tokens = token.tokens?.map(flat);
  },
});

/** Renders the parser's own HTML. The message is escaped text in it. */
function asHtml(markdown: string): Element {
  const root = document.createElement("div");
  root.innerHTML = marked.parse(markdown, { async: false });
  for (const link of root.querySelectorAll("a")) {
    const href = link.getAttribute("href") ?? "";
    link.removeAttribute("href");
    if (/^(?:https?:|mailto:)/i.test(href) && URL.canParse(href)) link.setAttribute("href", new URL(href).href);
    link.setAttribute("target", "_blank");
    link.setAttribute("rel", "noopener noreferrer nofollow");
  }
  nestHeadings(root);
  for (const box of root.querySelectorAll("input")) box.setAttribute("aria-label", box.hasAttribute("checked") ? "done" : "to do");
  for (const code of root.querySelectorAll("[class]")) if (!/^language-[\w+#.-]+$/.test(code.className)) code.removeAttribute("class");
  return root;
}

/** Gives each heading the level below its container. The page's own heading is the first level. */
function nestHeadings(root: Element): void {
  const outline: number[] = [];
  for (const heading of root.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    const depth = Number(heading.localName[1]);
    while (outline.length > 0 && outline.at(-1)! >= depth) outline.pop();
    outline.push(depth);
    const nested = document.createElement(`h${Math.min(6, outline.length + 1)}`);
    nested.append(...heading.childNodes);
    heading.replaceWith(nested);
  }
}

const INLINE = new Set(["a", "br", "code", "del", "em", "input", "strong"]);

/**
 * Returns the visible content, without table wrappers, breaks between blocks and text directions.
 */
function seen(root: Element): string {
  root.normalize();
  const children = [...root.childNodes].map((node) => {
    if (node.nodeType === Node.ELEMENT_NODE) return seen(node as Element);
    const text = node.nodeValue ?? "";
    if (root.localName === "code") return text;
    // Blanks at the edges of a block are invisible.
    const [before, after] = [node.previousSibling, node.nextSibling].map((one) => one && INLINE.has((one as Element).localName));
    const isInline = INLINE.has(root.localName);
    return text.replace(/^\s+/, before || isInline ? " " : "").replace(/\s+$/, after || isInline ? " " : "");
  });
  const inner = children.join("");
  if (root.localName === "div") return inner;
  const attributes = [...root.attributes].filter(({ name }) => name !== "dir").map(({ name, value }) => ` ${name}=${JSON.stringify(value)}`).sort();
  return `<${root.localName}${attributes.join("")}>${inner}</${root.localName}>`;
}

function check(markdown: string): void {
  assert.equal(seen(drawToElement(drawFinished(markdown))), seen(asHtml(markdown)), JSON.stringify(markdown.slice(0, 200)));
}

test("handwritten examples", () => {
  const docs = readdirSync("../docs").filter((name) => name.endsWith(".md")).map((name) => `../docs/${name}`);
  for (const file of ["README.md", "../README.md", "../ARCHITECTURE.md", "../CHANGELOG.md", ...docs]) check(readFileSync(file, "utf8"));
});

test("every markdown feature", () => {
  check("# One\n## Two ##\nThree\n===\nFour\n---\n###### Six `c` *e*\n\n* * *\n\n***\n");
  check("- a\n- b\n  c\n\n- d\n\n      code\n  - e\n    1. f\n    2. g\n- - h\n");
  check("3. three\n4. four\n\n0) none\n\n1. one\n\n   more\n");
  check("- [x] done\n- [ ] to do\n  - [X] within\n\ntext\n\n- [x] loose\n\n- [ ] ones\n- [ ]\n");
  check("| a | b | c | d |\n|---|:--|:-:|--:|\n| 1 | `x\\|y` | **b** <br> c |\n| 2 |\n\n| head |\n|-|\n");
  check("> quoted\n> > twice\nlazy\n> - a\n> ```\n> code\n> ```\n");
  check("a  \nb\\\nc\nd *e **f** g* __h__ ~i~ ~~j~~ ***k*** a*b*c a_b_c `` ` `` ` d `");
  check("[a](https://a.b/c?d=e&f=g \"t\") [b](<https://a.b/c d> 't') [c](https://a.b/(d)) [d] [e][d] [d][] ![f](https://a.b/g.png \"h\") ![](https://a.b)\n\n[d]: https://d.e (t)\n");
  check("<https://a.b?c&amp;d> <a@b.cd> https://a.b/c_d. www.a.b, a@b.cd (https://a.b/c) HTTPS://A.B ftp://a.b [a](mailto:b@c.de)");
  check("```js\nlet x;\n```\n\n```\n\n\nempty lines\n\n```\n\n~~~c++ more\nx\n~~~\n\n```\n```\n\n\tby a tab\n\n    by blanks\n\n```open\nx");
  check("\\* \\& \\&amp; \\` \\\\ \\< &amp; & &lt;b&gt; &#39; &#x26;lt; &hellip; &nbsp; &notin; &fjlig; &foo; AT&T &#0; &#xD800;");
  check("a <b>c</b> <br> <!-- d --> <pre> &lt; </pre>\n\n<div>\n*not this*\n</div>\n\n*this*\n\n<br>\n");
  check("[a [b](https://c.d) e](https://f.g) [![a](https://b.c)](https://d.e) [*a* `b` <b>](https://c.d)");
});

test("random mixtures", () => {
  const pieces = ["a", "b c", "\n", "\n\n", " ", "    ", "\t", "> ", "| a | b |", "|-|:-:|", "===", "---", "- ", "1. ", "# ", "<b>", "<div>", "```", "`c` d", "**e** f", "_", "é", "[a]: /x", "[a]", "[ ] ", "*", "~~", "&amp;", "&", "\\", "<br>", "[z](https://y.z '&quot;') ", "~~~c&#43;&#43;\n", "7. ", "&nbsp;", "<https://a.b> "];
  let seed = 1;
  const random = (below: number) => (seed = (seed * 48_271) % 2_147_483_647) % below;
  for (let n = 0; n < 4_000; n += 1) check(Array.from({ length: 1 + random(12) }, () => pieces[random(pieces.length)]).join(""));
});
