// Rows of a fork, and the events at which a session can be forked.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { ChatRow, TurnRow, UserRow } from "../src/state/rows";
import { reduce } from "../src/state/reduce";
import { emptyState } from "../src/state/screenState";
import { FrameScript, rowsOf } from "./frameScript";

/** Returns the events at which turns begin and end, by row. */
function edges(script: FrameScript): (number | undefined)[] {
  const isEdge = (row: ChatRow): row is UserRow | TurnRow => row.kind === "user" || row.kind === "turn";
  return script.play().rows.filter(isEdge).map((row) => (row.kind === "user" ? row.begins : row.end));
}

test("turn begins with its message and ends with its capture", () => {
  const script = new FrameScript().addAction("user", "message", { content: "go" });
  script.addObservation("chat", "go", { turn: "turn-2" }, { cause: 1 }).state("running").state("idle");
  assert.deepEqual(edges(script), [2, 4]);
  script.addObservation("checkpoint", "", { checkpoint: "turn-2", kind: "turn", files: 1, bytes: 2 });
  assert.deepEqual(edges(script), [2, 5]);
});

test("late capture leaves the end of an earlier turn in its place", () => {
  const script = new FrameScript();
  script.addObservation("chat", "a", { turn: "turn-1" }).state("running").addObservation("chat", "b", { turn: "turn-3" });
  script.addObservation("changes", "", { checkpoint: "turn-1", since: "start", files: [], added: 1, removed: 0 }).state("idle");
  assert.deepEqual(edges(script), [1, 2, 3, 5], "a turn without a state of its own ends before the next one");
});

test("steering message begins no turn", () => {
  const script = new FrameScript().addObservation("chat", "a", { turn: "turn-1" }).state("running");
  script.addObservation("chat", "b", { turn: "turn-1" });
  assert.deepEqual(edges(script), [1, undefined]);
});

test("fork drops the message that is sent anew, and notes its origin", () => {
  const script = new FrameScript().addObservation("chat", "a", { turn: "turn-1" }).state("running").state("idle");
  script.addAction("user", "message", { content: "old text" }).addObservation("forked", "", { from: "s0", at: 4 });
  const state = script.play();
  assert.deepEqual(rowsOf(state), ["delivered user: a", "turn finished", "quiet: "]);
  const note = state.rows.at(-1)!;
  assert.deepEqual(note.kind === "notice" && note.fork, { from: "s0", at: 4 });
});

test("agent's claim of a fork is no link", () => {
  const script = new FrameScript().addObservation("forked", "", { from: "s0", at: 4 }, { source: "agent" });
  const { rows } = reduce(emptyState, script.frames);
  assert.deepEqual(rows.map((row) => row.kind === "notice" && row.fork), []);
});
