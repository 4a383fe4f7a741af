// Page with an attempt of an earlier page, and then another tab's task in its place.

import { KEY } from "./storedTask";
import assert from "node:assert/strict";
import { test } from "node:test";
import { attempt, missing, openTask } from "../src/state/taskDraft";

test("task of another tab does not continue the stored attempt", () => {
  const kept = localStorage.getItem("greenroom.task.attempt");
  openTask();
  assert.equal(attempt.current?.session, "s1");
  localStorage.setItem("greenroom.task", "look elsewhere");
  localStorage.setItem(KEY, '["d.txt"]');
  openTask();
  assert.deepEqual([attempt.current, missing.peek()?.names], [null, ["d.txt"]]);
  assert.equal(localStorage.getItem("greenroom.task.attempt"), kept);
});
