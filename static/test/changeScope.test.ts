// Scopes of the changes, and the names of checkpoints.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkpointLabel, checkpointName, rangeOf, type ChangeScope } from "../src/changes/changeScope";
import { checkpoint } from "./checkpointRows";

const items = [
  checkpoint("start", "start"),
  checkpoint("turn-1", "turn"),
  checkpoint("before-restore-2", "before_restore"),
  checkpoint("restore-2", "restore"),
  checkpoint("turn-3", "turn", { partial: true }),
  checkpoint("restore-4", "restore"),
];

test("each scope compares two points", () => {
  const check = (scope: ChangeScope, expected: string, more: { seen?: string; isInTurn?: boolean } = {}) => {
    const range = rangeOf(scope, { items, seen: more.seen ?? null, isInTurn: more.isInTurn === true });
    assert.equal(range && `${range.from}..${range.to}`, expected, scope);
  };
  check("turn", "restore-2..turn-3");
  check("turn", "restore-4..now", { isInTurn: true });
  check("seen", "start..now");
  check("seen", "turn-1..now", { seen: "turn-1" });
  check("seen", "start..now", { seen: "turn-that-was-dropped" });
  check("all", "start..now");
  check("at:turn-1", "start..turn-1");
  check("at:restore-2", "before-restore-2..restore-2");
  check("at:turn-that-was-dropped", "start..now");
});

test("without a turn there is nothing, or only what changed since the start", () => {
  assert.equal(rangeOf("turn", { items: [], seen: null, isInTurn: false }), null);
  const empty = { items: items.slice(1, 2), seen: null, isInTurn: false };
  assert.deepEqual(rangeOf("turn", empty), { from: "start", to: "turn-1" }, "the list lacks an empty start");
  assert.deepEqual(rangeOf("at:turn-1", empty), { from: "start", to: "turn-1" });
  assert.deepEqual(rangeOf("all", empty), { from: "start", to: "now" });
  assert.deepEqual(rangeOf("turn", { items: items.slice(0, 1), seen: null, isInTurn: false }), { from: "start", to: "now" });
});

test("turns are counted, and a partial checkpoint says so", () => {
  const names = items.map((item) => checkpointName(items, item.checkpoint));
  assert.deepEqual(names, ["Start", "Turn 1", "Before a restore", "After a restore", "Turn 2", "After a restore"]);
  assert.equal(checkpointName(items.slice(1), "start"), "Start");
  assert.match(checkpointLabel(items, items[4]!), /^Turn 2, .*\(partial\)$/);
  assert.doesNotMatch(checkpointLabel(items, items[1]!), /partial/);
});
