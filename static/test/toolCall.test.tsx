// Content of a tool call.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { signal } from "@preact/signals";
import { render } from "preact";
import { syncClock } from "../src/clock";
import { ToolCall } from "../src/components/ToolCall";
import { loadLazy } from "../src/loadLazy";
import { currentSession } from "../src/state/currentSession";
import type { PaneLayout } from "../src/state/layout";
import { noText, type ToolEnd, type ToolRow } from "../src/state/rows";
import { terminalTabsOf } from "../src/terminal/terminalTabs";
import { press, renderText, root, settled, TestSession } from "./testSession";

test("call shows its duration and a clock after the first second", () => {
  const root = document.createElement("div");
  const call = (more: Partial<ToolRow>) => {
    const row: ToolRow = { kind: "tool", key: "t", seq: 1, source: "agent", name: "run", args: { command: "ls" }, input: noText, output: noText, end: null, ...more };
    render(<ToolCall key={JSON.stringify(more)} row={row} />, root);
    return root.querySelector(".tool-facts")!.textContent;
  };
  const end = (durationMs: number) => ({ outcome: "ok", at: "", content: "", extras: {}, durationMs }) as const;
  assert.equal(call({ end: end(1200) }), "1.2 s");
  assert.equal(call({ end: end(999) }), "");
  const since = (ms: number) => new Date(Date.now() - ms).toISOString();
  assert.equal(call({ at: since(4000) }), "", "the server's time is unknown");
  syncClock(new Date().toISOString());
  assert.equal(call({ at: since(400) }), "");
  assert.equal(call({ at: since(4000) }), "4 s");
  render(null, root);
});

test("outcomes of a call", () => {
  const root = document.createElement("div");
  const ended = (outcome: ToolEnd["outcome"], extras: Record<string, unknown> = {}) => {
    const end = { outcome, at: "", content: "", extras, durationMs: null };
    const row: ToolRow = { kind: "tool", key: "t", seq: 1, source: "agent", name: "run", args: {}, input: noText, output: noText, end };
    render(<ToolCall key={JSON.stringify(end)} row={row} />, root);
    return root.querySelector(".outcome")?.textContent;
  };
  assert.equal(ended("ok"), undefined);
  assert.equal(ended("failed", { exit_code: 3 }), "exit 3");
  assert.equal(ended("failed", { exit_code: 139, signal: "SIGSEGV" }), "SIGSEGV, exit 139");
  assert.equal(ended("failed", { timed_out: true }), "timed out");
  assert.equal(ended("failed"), "failed");
  assert.equal(ended("stopped"), "interrupted");
  assert.equal(ended("cut"), "cut short");
});

test("card of a command opens its terminal view, in a folded workspace too", async () => {
  const { live } = new TestSession();
  const layout = signal<PaneLayout>({ share: 0.5, folded: "workspace", tab: "plan" });
  currentSession.value = { live, layout };
  const end = { outcome: "failed", at: "", content: "x", extras: { exit_code: 1 }, durationMs: 1 } as const;
  const row: ToolRow = { kind: "tool", key: "tool:c1", seq: 1, source: "agent", name: "run", args: { command: "ls" }, input: noText, output: noText, end };
  await loadLazy();
  await renderText(<ToolCall row={row} />);
  root.querySelector<HTMLElement>(".tool-line")!.click();
  await settled();
  press("Open the output in a terminal view");
  assert.deepEqual(layout.value, { share: 0.5, folded: null, tab: "terminal" });
  assert.deepEqual(terminalTabsOf(live.id).shown.value, { kind: "run", row: "tool:c1" });
  currentSession.value = null;
  render(null, root);
});
