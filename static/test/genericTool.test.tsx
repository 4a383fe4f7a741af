// Tool call without an action of its own: live, replayed, failed, stopped, unknown, malformed.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, before, test } from "node:test";
import { render } from "preact";
import { loadLazy } from "../src/loadLazy";
import { ToolCall } from "../src/components/ToolCall";
import { FilteredFrames, DEFAULT_FILTER } from "../src/state/frameFilter";
import { reduce } from "../src/state/reduce";
import { emptyState, type ScreenState } from "../src/state/screenState";
import type { ToolRow } from "../src/state/rows";
import type { ActionArguments, ObservationExtras } from "../src/wire/event";
import { FrameScript, rowsOf } from "./frameScript";

const call: ActionArguments["tool"] = {
  kind: "search",
  title: "Search for `fn main`",
  name: "search",
  input: { pattern: "fn main" },
  locations: [{ path: "src", line: 3 }],
};
const done: ObservationExtras["tool"] = { kind: "search", title: "Search for `fn main`", name: "search", status: "completed" };

before(loadLazy);

const roots: HTMLElement[] = [];
afterEach(() => roots.splice(0).forEach((root) => render(null, root)));

function draw(state: ScreenState): HTMLElement {
  const root = document.createElement("div");
  roots.push(root);
  render(<ToolCall row={state.rows.at(-1) as ToolRow} />, root);
  return root;
}

async function unfold(root: HTMLElement): Promise<void> {
  root.querySelector<HTMLElement>(".tool-line")!.click();
  await new Promise((drawn) => setTimeout(drawn));
}

const texts = (root: HTMLElement, selector: string) => [...root.querySelectorAll(selector)].map((one) => one.textContent);

test("call is shown live, then with its result", async () => {
  const script = new FrameScript().addAction("agent", "tool", call, { item: "i" });
  const live = draw(script.play());
  assert.deepEqual(texts(live, ".tool-verb, .tool-title"), ["Search", "Search for `fn main`"]);
  assert.ok(live.querySelector(".spinner"));
  const ended = draw(script.addObservation("tool", "src/main.rs:1: fn main", done, { item: "i" }).play());
  assert.equal(ended.querySelector(".spinner, .outcome"), null);
  await unfold(ended);
  assert.deepEqual(texts(ended, ".tool-places code"), ["src:3"]);
  assert.match(ended.querySelector(".output")!.textContent!, /src\/main\.rs:1/);
  assert.deepEqual(texts(ended, "details.raw > summary")[0], "Input");
  assert.match(ended.querySelector("details.raw pre")!.textContent!, /"pattern": "fn main"/);
});

test("replayed call equals the live call", () => {
  const script = new FrameScript().addAction("agent", "tool", call, { item: "i" }).addObservation("tool", "found", done, { item: "i" });
  const live = script.frames.reduce((state, frame) => reduce(state, [frame]), emptyState);
  assert.deepEqual(script.play().rows, live.rows);
  assert.deepEqual(rowsOf(live), ["tool ok: found"]);
});

test("failed and stopped calls name their end", () => {
  for (const [status, word] of [["failed", "failed"], ["stopped", "interrupted"]] as const) {
    const script = new FrameScript().addAction("agent", "tool", call, { item: "i" }).addObservation("tool", "", { ...done, status }, { item: "i" });
    assert.deepEqual(texts(draw(script.play()), ".outcome"), [word]);
  }
});

test("short changes unfold as diffs", () => {
  const changes = [{ path: "a.rs", change: "modified", diff: "@@ -1 +1 @@\n-x\n+y\n", added: 1, removed: 1 }, { path: "b.rs" }] as ObservationExtras["tool"]["changes"];
  const script = new FrameScript().addAction("agent", "tool", { ...call, kind: "edit", locations: [{ path: "a.rs" }] }, { item: "i" });
  const root = draw(script.addObservation("tool", "", { ...done, kind: "edit", changes }, { item: "i" }).play());
  assert.deepEqual(texts(root, ".tool-change"), ["a.rs modified +1 −1", "b.rs "]);
  assert.deepEqual(texts(root, ".diff > .added"), ["+y\n"]);
  assert.deepEqual(texts(root, ".tool-places"), [], "the change names the place");
});

test("unknown kind is shown as `other`", () => {
  const script = (kind: string) => new FrameScript().addAction("agent", "tool", { ...call, kind: kind as "other" });
  const look = (kind: string) => draw(script(kind).play()).querySelector(".tool-line")!.innerHTML;
  assert.equal(look("teleport"), look("other"));
  assert.equal(look("constructor"), look("other"));
  assert.notEqual(look("search"), look("other"));
});

test("malformed call is drawn plainly, and malformed entries are left out", async () => {
  const broken = new FrameScript().addAction("agent", "tool", { ...call, title: 7 as never });
  assert.deepEqual(rowsOf(broken.play()), ["tool (unreadable) running: "]);
  const locations = [{ path: 7 }, { path: "a", line: "x" }, {}] as never;
  const root = draw(new FrameScript().addAction("agent", "tool", { ...call, title: "", input: null, locations }).play());
  assert.deepEqual(texts(root, ".tool-title"), ["search"], "without a title, the name is shown");
  await unfold(root);
  assert.deepEqual(texts(root, ".tool-places code"), ["a"]);
});

test("unknown observation stays in the Events tab", () => {
  const frame = { seq: 1, at: "2026-01-01T00:00:00.000Z", source: "agent", observation: "smell", content: "smoke", extras: {} } as never;
  const log = [{ way: "in", at: 0, frame, replayed: false }] as never;
  assert.equal(new FilteredFrames().of(log, { ...DEFAULT_FILTER, text: "smoke" }).length, 1);
});
