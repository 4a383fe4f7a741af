// Growing message: finished blocks keep their elements.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { render } from "preact";
import { Markdown } from "../src/components/Markdown";
import { highlight } from "../src/markdown/highlight";

function show(text: string, open: boolean, root: Element): Element[] {
  render(<Markdown text={text} open={open} />, root);
  return [...root.querySelectorAll("pre, p, ul, table")];
}

const CODE = "```js\nlet one;\n```";

test("finished blocks keep their elements", () => {
  const root = document.createElement("div");
  const text = `One.\n\n${CODE}\n\n- a\n\n`;
  const [paragraph, code] = show(`${text}T`, true, root);
  assert.equal(code?.localName, "pre");
  assert.deepEqual(show(`${text}Two\n\n${CODE}\n\nThree`, true, root).slice(0, 2), [paragraph, code]);
  const ended = show(`${text}Two\n\n${CODE}\n\nThree`, false, root);
  assert.deepEqual(ended.slice(0, 2), [paragraph, code]);
  assert.deepEqual(show(`${text}Two\n\n${CODE}\n\nThree`, false, root), ended);
  assert.equal(root.textContent, "One.let one;\naTwolet one;\nThree");
});

test("highlighted code is replaced when the text changes", () => {
  const root = document.createElement("div");
  const coloured = () => {
    for (const code of root.querySelectorAll("code")) highlight(code);
    return root.innerHTML.match(/<span class="hljs-keyword">let<\/span>/g)?.length ?? 0;
  };
  show(`${CODE}\n\n${CODE}`, false, root);
  assert.equal(coloured(), 2);
  show("```js\nlet two;\n```", false, root);
  assert.equal(root.textContent, "let two;\n");
  assert.equal(coloured(), 1);
  show("None.", false, root);
  assert.equal(root.textContent, "None.");
});
