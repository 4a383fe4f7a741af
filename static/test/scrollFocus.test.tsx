// Scrolling boxes for keyboard users.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { render, type VNode } from "preact";
import { Diff } from "../src/components/Diff";
import { Markdown } from "../src/components/Markdown";
import { Output } from "../src/components/Output";
import { ToolCall } from "../src/components/ToolCall";
import type { ToolRow } from "../src/state/rows";
import { loadLazy } from "../src/loadLazy";
import { settled } from "./testSession";

/** Overflow of each box in pixels. */
let beyond = 0;

/** Browsers call the observer once at first. */
globalThis.ResizeObserver = class {
  constructor(private readonly changed: ResizeObserverCallback) {}
  observe() {
    queueMicrotask(() => this.changed([], this));
  }
  unobserve() {}
  disconnect() {}
};
Object.defineProperty(window.HTMLElement.prototype, "scrollHeight", { get: () => beyond });

/** Returns the labels of the tab stops. */
async function tabStops(view: VNode, more: number): Promise<(string | null)[]> {
  beyond = more;
  const root = document.createElement("div");
  render(view, root);
  await settled();
  const found = [...root.querySelectorAll("[tabindex='0']")];
  assert.ok(found.every((box) => box.getAttribute("role") === "group"), root.innerHTML);
  return found.map((box) => box.getAttribute("aria-label"));
}

test("only overflowing boxes are tab stops", async () => {
  await loadLazy();
  const text = "```\ncode\n```\n\n| a |\n|---|\n| b |\n";
  const written = { kind: "tool", name: "edit", seq: 1, args: { path: "x" }, input: { text: "" }, output: { text: "" }, end: { outcome: "ok", content: "", extras: { diff: "@@ -1 +1 @@\n-a\n+b\n" } } } as unknown as ToolRow;
  const views: [VNode, string[]][] = [
    [<Markdown text={text} open={false} />, ["Code", "Table"]],
    [<Output text="printed" live={false} />, ["Output"]],
    [<Diff path="a.rs" text={"@@ -1 +1 @@\n-a\n+b\n"} />, ["Diff"]],
    [<ToolCall row={written} />, ["Diff"]],
  ];
  for (const [view, names] of views) {
    assert.deepEqual(await tabStops(view, 0), []);
    assert.deepEqual(await tabStops(view, 100), names);
  }
});

test("output becomes a tab stop as it grows", async () => {
  const root = document.createElement("div");
  beyond = 0;
  render(<Output text="a" live />, root);
  await settled();
  assert.equal(root.querySelector<HTMLElement>(".output")?.tabIndex, -1);
  beyond = 100;
  render(<Output text={"a\nb"} live />, root);
  await settled();
  assert.equal(root.querySelector<HTMLElement>(".output")?.tabIndex, 0);
});
