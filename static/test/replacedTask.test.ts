// A page that goes on with what one before it has begun, until it finds the words of another tab in their place.

import { KEY } from "./lost";
import assert from "node:assert/strict";
import { test } from "node:test";
import { attempt, lost, openTask } from "../src/state/task";

test("those words do not go where the others were to, and the tab beside this one goes on with what it has", () => {
  const kept = localStorage.getItem("greenroom.task.attempt");
  openTask();
  assert.equal(attempt.current?.session, "s1");
  localStorage.setItem("greenroom.task", "look elsewhere");
  localStorage.setItem(KEY, '["d.txt"]');
  openTask();
  assert.deepEqual([attempt.current, lost.peek()?.names], [null, ["d.txt"]]);
  assert.equal(localStorage.getItem("greenroom.task.attempt"), kept);
});
