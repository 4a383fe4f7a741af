// Growing message: finished blocks keep their elements.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { render } from "preact";
import { Markdown } from "../src/components/Markdown";
import { waitUntil } from "./testSession";

function show(text: string, open: boolean, root: Element): Element[] {
  render(<Markdown text={text} open={open} />, root);
  return [...root.querySelectorAll(".code-block, p, ul, table")];
}

const CODE = "```js\nlet one;\n```";

test("finished blocks keep their elements", () => {
  const root = document.createElement("div");
  const text = `One.\n\n${CODE}\n\n- a\n\n`;
  const [paragraph, code] = show(`${text}T`, true, root);
  assert.equal(code?.className, "code-block");
  assert.deepEqual(show(`${text}Two\n\n${CODE}\n\nThree`, true, root).slice(0, 2), [paragraph, code]);
  const ended = show(`${text}Two\n\n${CODE}\n\nThree`, false, root);
  assert.deepEqual(ended.slice(0, 2), [paragraph, code]);
  assert.deepEqual(show(`${text}Two\n\n${CODE}\n\nThree`, false, root), ended);
  assert.equal(root.textContent, "One.let one;\naTwolet one;\nThree");
});

test("highlighted code is replaced when the text changes", async () => {
  const root = document.createElement("div");
  const coloured = () => root.innerHTML.match(/<span class="hljs-keyword">let<\/span>/g)?.length ?? 0;
  show(`${CODE}\n\n${CODE}`, false, root);
  await waitUntil(() => coloured() === 2);
  show("```js\nlet two;\n```", false, root);
  assert.equal(root.textContent, "let two;\n");
  await waitUntil(() => coloured() === 1);
  show("None.", false, root);
  assert.equal(root.textContent, "None.");
});
