// Consecutive reads as one item, and the duration of thinking.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { Chat } from "../src/components/Chat";
import { isOrHolds, ReadGrouping } from "../src/state/readGroups";
import { reduce } from "../src/state/reduce";
import { emptyState } from "../src/state/screenState";
import { FrameScript } from "./frameScript";
import { renderText, root, settled, TestSession } from "./testSession";

afterEach(() => render(null, root));

class ReadScript extends FrameScript {
  private reads = 0;

  read(path: string, isFailed = false): this {
    const item = `r${(this.reads += 1)}`;
    this.addAction("agent", "read", { path }, { item });
    if (isFailed) return this.addObservation("error", "", { code: "not_found", detail: `no ${path}` } as never, { item });
    return this.addObservation("read", path, { path }, { item });
  }

  say(text: string): this {
    return this.addObservation("message", text, {});
  }
}

const lines = () => [...root.querySelectorAll(".row")].map((row) => [...row.querySelectorAll(".tool-verb, .tool-line code, .outcome, .markdown")].map((part) => part.textContent).join(" "));

/** Returns a function that sends the frames added since its last call. */
function sender(session: TestSession, script: FrameScript): () => Promise<void> {
  let sent = 0;
  return async () => {
    session.receive(...script.frames.slice(sent));
    sent = script.frames.length;
    await settled();
  };
}

test("consecutive reads are one line that opens to the list", async () => {
  const session = new TestSession();
  session.play(new ReadScript().read("a.rs").read("b.rs", true).read("a.rs").say("between").read("c.rs"));
  await renderText(<Chat live={session.live} />);
  assert.deepEqual(lines(), ["Read 2 files 1 failed", "between", "Read c.rs"]);
  root.querySelector<HTMLElement>(".tool-line")!.click();
  await settled();
  assert.deepEqual(lines(), ["Read 2 files 1 failed", "Read a.rs", "Read b.rs failed", "Read a.rs", "between", "Read c.rs"]);
});

test("opened group stays open while it grows, and an opened read when others join it", async () => {
  const session = new TestSession();
  const script = new ReadScript().read("a.rs");
  const send = sender(session, script);
  await renderText(<Chat live={session.live} />);
  await send();
  root.querySelector<HTMLElement>(".tool-line")!.click();
  await settled();
  script.read("b.rs");
  await send();
  assert.deepEqual(lines(), ["Read 2 files", "Read a.rs", "Read b.rs"]);
  assert.equal(root.querySelectorAll(".tool-line")[1]!.getAttribute("aria-expanded"), "true");
  script.read("c.rs").say("end");
  await send();
  assert.deepEqual(lines(), ["Read 3 files", "Read a.rs", "Read b.rs", "Read c.rs", "end"]);
});

test("groups are bounded, and equal live, replayed and in any batches", () => {
  const script = new ReadScript();
  for (let n = 0; n < 120; n += 1) script.read(`f${n}`);
  script.say("end");
  const sizes = (grouping: ReadGrouping, rows: Parameters<ReadGrouping["group"]>[0]) =>
    grouping.group(rows).map((item) => (item.kind === "reads" ? item.rows.length : item.kind));
  const replayed = sizes(new ReadGrouping(), script.play().rows);
  assert.deepEqual(replayed, [50, 50, 20, "text"]);
  const grouping = new ReadGrouping();
  let state = emptyState;
  let before = grouping.group(state.rows);
  for (const frame of script.frames) {
    state = reduce(state, [frame]);
    const items = grouping.group(state.rows);
    for (const [n, item] of before.slice(0, -1).entries()) assert.equal(items[n], item, "a complete group keeps its identity");
    before = items;
  }
  assert.deepEqual(sizes(grouping, state.rows), replayed);
  assert.equal(grouping.group(state.rows)[0], grouping.group(state.rows)[0]);
});

test("group is found by the key that it had before earlier reads joined it", () => {
  const { rows } = new ReadScript().read("a").read("b").read("c").play();
  const [late] = new ReadGrouping().group(rows.slice(2));
  const [whole] = new ReadGrouping().group(rows);
  assert.notEqual(whole!.key, late!.key);
  assert.ok(isOrHolds(whole!, late!.key));
  assert.ok(!isOrHolds(whole!, "reads tool:x"));
});

test("reads of the user and calls of other kinds are not grouped, generic reads are", () => {
  const script = new ReadScript().addAction("user", "read", { path: "u" }, { item: "u" }) as ReadScript;
  const generic = { kind: "read", title: "Read b", name: "Read", locations: [] } as const;
  script.read("a").addAction("agent", "tool", { ...generic, locations: [] }, { item: "g" });
  script.addAction("agent", "tool", { ...generic, kind: "edit", locations: [] }, { item: "h" });
  const items = new ReadGrouping().group(script.play().rows);
  assert.deepEqual(items.map((item) => (item.kind === "reads" ? item.rows.length : item.kind)), ["tool", 2, "tool"]);
});

test("thinking lasts from the agent's last step, and shows nothing under a second", async () => {
  const at = (second: number) => `2026-01-01T00:00:${String(second).padStart(2, "0")}.000Z`;
  const base = (seq: number, second: number) => ({ seq, at: at(second), source: "agent" });
  const think = (seq: number, second: number) => ({ ...base(seq, second), observation: "think", content: `t${seq}`, extras: {} });
  const enter = (seq: number, second: number, state: string) => ({
    ...base(seq, second), source: "server", observation: "agent_state_changed", content: "", extras: { agent_state: state, since: at(second) },
  });
  const frames = [
    enter(1, 1, "running"),
    think(2, 13),
    { ...base(3, 13), action: "run", args: { command: "make" }, item: "r" },
    { ...base(4, 20), observation: "run", content: "", extras: { command: "make", exit_code: 0, duration_ms: 7000 }, item: "r" },
    { ...base(5, 21), source: "server", observation: "usage", content: "", extras: { model: "m", input_tokens: 1, output_tokens: 1 } },
    think(6, 23),
    think(7, 23),
    // A pause does not count.
    enter(8, 24, "paused"),
    enter(9, 50, "running"),
    think(10, 54),
  ] as never[];
  const session = new TestSession();
  session.receive(...frames);
  await renderText(<Chat live={session.live} />);
  const thoughts = [...root.querySelectorAll(".fold")].map((fold) => fold.textContent?.trim());
  assert.deepEqual(thoughts, ["Thought for 12 s", "Thought for 3 s", "Thought", "Thought for 4 s"]);
  const [alone] = reduce(emptyState, frames.slice(1, 2)).rows;
  assert.equal(alone?.kind === "thinking" && alone.durationMs, undefined, "nothing is known of its beginning");
});
