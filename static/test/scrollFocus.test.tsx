// Boxes that scroll, for those who have no mouse.

import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { render, type VNode } from "preact";
import { Diff } from "../src/components/Diff";
import { Markdown } from "../src/components/Markdown";
import { Output } from "../src/components/Output";
import { ToolCall } from "../src/components/ToolCall";
import type { ToolRow } from "../src/state/rows";
import { settled } from "./stage";

/** How much more is in each box than it shows, in pixels. */
let beyond = 0;

/** As in a browser, it is asked once at first. */
globalThis.ResizeObserver = class {
  constructor(private readonly changed: ResizeObserverCallback) {}
  observe() {
    queueMicrotask(() => this.changed([], this));
  }
  unobserve() {}
  disconnect() {}
};
Object.defineProperty(window.HTMLElement.prototype, "scrollHeight", { get: () => beyond });

/** The stops on the way through what is drawn, by their names. */
async function stops(view: VNode, more: number): Promise<(string | null)[]> {
  beyond = more;
  const root = document.createElement("div");
  render(view, root);
  await settled();
  const found = [...root.querySelectorAll("[tabindex='0']")];
  assert.ok(found.every((box) => box.getAttribute("role") === "group"), root.innerHTML);
  return found.map((box) => box.getAttribute("aria-label"));
}

test("what scrolls is a stop on the way, and nothing else", async () => {
  const text = "```\ncode\n```\n\n| a |\n|---|\n| b |\n";
  const written = { kind: "tool", name: "edit", seq: 1, args: { path: "x" }, input: { text: "" }, output: { text: "" }, end: { outcome: "ok", content: "", extras: { diff: "@@ -1 +1 @@\n-a\n+b\n" } } } as unknown as ToolRow;
  const views: [VNode, string[]][] = [
    [<Markdown text={text} open={false} />, ["Code", "Table"]],
    [<Output text="printed" live={false} />, ["Output"]],
    [<Diff text={"@@ -1 +1 @@\n-a\n+b\n"} />, ["Diff"]],
    [<ToolCall row={written} />, ["Diff"]],
  ];
  for (const [view, names] of views) {
    assert.deepEqual(await stops(view, 0), []);
    assert.deepEqual(await stops(view, 100), names);
  }
});

test("an output becomes one as it grows", async () => {
  const root = document.createElement("div");
  beyond = 0;
  render(<Output text="a" live />, root);
  await settled();
  assert.equal(root.querySelector("pre")?.tabIndex, -1);
  beyond = 100;
  render(<Output text={"a\nb"} live />, root);
  await settled();
  assert.equal(root.querySelector("pre")?.tabIndex, 0);
});
