// Hostile messages render to a few elements with a few attributes, and text.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { advance, loadMarkdownCloser, noBlocks } from "../src/markdown/blocks";
import { loadLazy } from "../src/loadLazy";
import { waitUntil } from "./testSession";
import { drawToElement, drawFinished } from "./drawMarkdown";

const WRITTEN = /^[\w+#.-]+$/;
const ONE_OF = (...values: string[]) => (value: string) => values.includes(value);
type AllowedAttributes = Record<string, (value: string) => boolean>;

const ALIGNED: AllowedAttributes = { align: ONE_OF("left", "center", "right") };
/** Text direction. */
const DIR = ONE_OF("auto", "ltr");
const PLAIN: AllowedAttributes = {};
const ALLOWED: Record<string, AllowedAttributes> = {
  a: {
    href: (value) => /^(?:https?:\/\/[^/]|mailto:)/.test(value) && new URL(value, location.href).href === value,
    title: () => true,
    target: ONE_OF("_blank"),
    rel: ONE_OF("noopener noreferrer nofollow"),
  },
  code: { class: (value) => value.startsWith("language-") && WRITTEN.test(value.slice("language-".length)) },
  button: { type: ONE_OF("button"), class: ONE_OF("icon-button copy"), "aria-label": ONE_OF("Copy"), title: ONE_OF("Copy") },
  div: { class: ONE_OF("wide", "code-block", "code-box") },
  span: { class: (value) => /^(?:hljs-|language-)[\w -]+$/.test(value) },
  svg: { class: ONE_OF("icon"), viewBox: () => true, "aria-hidden": ONE_OF("true") },
  path: { d: () => true },
  rect: Object.fromEntries(["x", "y", "width", "height", "rx", "ry"].map((name) => [name, () => true])),
  input: { type: ONE_OF("checkbox"), disabled: ONE_OF(""), checked: ONE_OF(""), "aria-label": ONE_OF("done", "to do") },
  ol: { start: (value) => /^\d+$/.test(value) },
  p: { class: ONE_OF("plain") },
  td: ALIGNED,
  th: ALIGNED,
  ...Object.fromEntries(
    "blockquote br del em h1 h2 h3 h4 h5 h6 hr li pre strong table tbody thead tr ul".split(" ").map((name) => [name, PLAIN]),
  ),
};

function check(root: Element, markdown: string): void {
  for (const element of root.querySelectorAll("*")) {
    const allowed = ALLOWED[element.localName];
    assert.ok(allowed, `<${element.localName}> of ${JSON.stringify(markdown)}`);
    for (const { name, value } of element.attributes) {
      const isAllowed = name === "dir" ? DIR(value) : Object.hasOwn(allowed, name) && allowed[name]?.(value);
      assert.ok(isAllowed, `${name}="${value}" of ${JSON.stringify(markdown)}`);
    }
    assert.ok(element.localName !== "a" || element.hasAttribute("rel"), markdown);
    assert.ok(element.localName !== "input" || element.hasAttribute("disabled"), markdown);
  }
}

const MARKUP = [
  "<script>alert(1)</script>",
  "<img src=x onerror=\"alert(1)\">",
  "<svg onload=alert(1)><animate onbegin=alert(1) attributeName=x dur=1s></svg>",
  "<iframe srcdoc=\"<script>alert(1)</script>\"></iframe>",
  "<a href=\"javascript:alert(1)\" onclick=alert(1)>x</a>",
  "<style>body { display: none }</style><base href=//evil.example/>",
  "<form action=/api/sessions><input type=password name=token autofocus onfocus=alert(1)><button>go</button></form>",
  "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=alert(1)&gt;\">",
  "<div style=\"position:fixed\" id=app class=dialog>x</div>",
  "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
  "<pre> &lt;img src=x onerror=alert(1)&gt; <x </pre>",
  "<textarea></textarea><img src=x onerror=alert(1)>",
  "a <b onclick='x()'>b</b> <br onclick=x> <BR/>",
  "&lt;script&gt;alert(1)&lt;/script&gt; &#60;img src=x onerror=alert(1)&#62; &lt/textarea&gt;",
  "[x](javascript:alert(1)) [x](  JaVaScRiPt:alert(1)) <javascript:alert(1)>",
  "[x](&#106;avascript:alert(1)) [x](&#x6A;avascript:alert(1)) [x](javascript&colon;alert(1)) [x](java&Tab;script:alert(1))",
  "[x](<java\tscript:alert(1)>) [x](<&#1;javascript:alert(1)>) [x](java&NewLine;script:alert(1)) [x](<\u00a0javascript:alert(1)>)",
  "[x](data:text/html,<script>alert(1)</script>) [x](vbscript:x) [x](blob:https://a.b/c) [x](file:///etc/passwd)",
  "[x](/api/sessions) [x](//evil.example) [x](#app) [x](?replay=x) [x](http:api/sessions) [x](https:/api) [x](\\\\evil.example)",
  "[ref]: javascript:alert(1) \"t\"\n\n[ref] [y][ref] ![ref]",
  "![x](javascript:alert(1)) ![x](x\" onerror=\"alert(1)) ![<img src=x onerror=alert(1)>](https://a.b/\"onerror=alert(1))",
  "[x](https://a.b '\" onmouseover=\"alert(1)') [x](https://a.b/\"onclick=alert(1)) [x](https://a.b \"&quot; onclick=&quot;alert(1)\")",
  "<https://a.b/\"onclick=alert(1)> https://a.b/\"onclick=alert(1) www.a.b/'x'onclick=alert(1) <a@b.c\"onclick=alert(1)>",
  "[![x](javascript:alert(1))](javascript:alert(1)) [<https://a.b>](https://c.d)",
  "```\" onmouseover=\"alert(1)\nx\n```",
  "```js dialog\nx\n```\n\n```js&quot;&#32;dialog\nx\n```\n\n~~~dialog&nbsp;x\nx\n~~~\n\n~~~ js\" id=\"app\nx\n~~~",
  "```html\n<script>alert(1)</script>\n```\n\n    <script>alert(1)</script>",
  "| a | b |\n|:-:|-:|\n| <img src=x onerror=alert(1)> | `<b>` |",
  "1234567. a\n2. b\n\n- [x] <b>c</b>\n- [ ] [d](javascript:x)",
  "`<img src=x onerror=alert(1)>` **<b onclick=x>x</b>** # <b>\n\n# <b onclick=x>\n\n<b>\n===",
];

test("hostile markup is shown as text", async () => {
  await loadMarkdownCloser();
  for (const markdown of [...MARKUP, MARKUP.join("\n\n"), MARKUP.join(" ")]) {
    check(drawToElement(drawFinished(markdown)), markdown);
    for (let end = 1; end <= Math.min(markdown.length, 200); end += 1) {
      const { parts, tail } = advance(noBlocks, markdown.slice(0, end), true);
      check(drawToElement([...parts.flat(), ...tail]), markdown.slice(0, end));
    }
  }
});

test("random mixtures of markup are shown as text", () => {
  const pieces = [...MARKUP, "\n", "\n\n", " ", "> ", "- ", "[", "](", ")", "<", ">", "\"", "'", "`", "**", "| ", "&", ";", "\\", "![", "```"];
  let seed = 1;
  const random = (below: number) => (seed = (seed * 48_271) % 2_147_483_647) % below;
  for (let n = 0; n < 1_000; n += 1) {
    const cut = () => {
      const piece = pieces[random(pieces.length)] ?? "";
      return piece.slice(0, 1 + random(piece.length));
    };
    const markdown = Array.from({ length: 1 + random(8) }, cut).join("");
    check(drawToElement(drawFinished(markdown)), markdown);
  }
});

test("hostile code is shown as text in its final look", async () => {
  await loadLazy();
  for (const markdown of MARKUP) {
    const root = drawToElement(drawFinished(markdown));
    await waitUntil(() => !root.querySelector(".code-block > pre"));
    check(root, markdown);
  }
});
