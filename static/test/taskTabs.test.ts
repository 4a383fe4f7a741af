// Task written in one tab, seen from another one.

import "./testWindow";
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

const TASK = "greenroom.task";
const FILES = "greenroom.task.files";

/** Stores the task of the other tab. */
function storeOtherTab(task: string, ...names: string[]): void {
  localStorage.setItem(TASK, task);
  if (names.length > 0) localStorage.setItem(FILES, JSON.stringify(names));
  else localStorage.removeItem(FILES);
}

// The other tab attached a file without a text before this page loads.
storeOtherTab("", "a.txt");
const { attachFiles, files, missing, openTask, task, writeTask } = await import("../src/state/taskDraft");
const loaded = localStorage.getItem(FILES);
const missingNames = () => missing.peek()?.names ?? [];
const storedNames = () => JSON.parse(localStorage.getItem(FILES) ?? "[]") as unknown;

beforeEach(() => {
  files.value = [];
  writeTask("");
});

test("loading a page keeps the other tab's stored names", () => {
  assert.equal(loaded, '["a.txt"]');
});

test("adopted task lists its missing files", () => {
  storeOtherTab("look at it", "a.txt", "b.txt");
  openTask();
  assert.deepEqual([task.peek(), missingNames()], ["look at it", ["a.txt", "b.txt"]]);
  openTask();
  assert.deepEqual(missingNames(), ["a.txt", "b.txt"], "each file is missing once");
  attachFiles([new File(["a"], "a.txt")]);
  assert.deepEqual(missingNames(), ["b.txt"]);
  storeOtherTab("look at them", "a.txt", "b.txt", "c.txt");
  openTask();
  assert.deepEqual(missingNames(), ["b.txt", "c.txt"], "this page has one of the files");
});

test("adopted task without files misses none", () => {
  storeOtherTab("look at it", "a.txt");
  openTask();
  storeOtherTab("another one");
  openTask();
  assert.deepEqual(missingNames(), []);
});

test("empty task of another tab misses no files and keeps the stored names", () => {
  storeOtherTab("look at it", "a.txt");
  openTask();
  storeOtherTab("", "of-the-next.txt");
  openTask();
  assert.deepEqual([missingNames(), storedNames()], [[], ["of-the-next.txt"]]);
});

test("stored names belong to the stored task", () => {
  writeTask("mine");
  storeOtherTab("theirs", "a.txt");
  attachFiles([new File(["b"], "b.txt")]);
  assert.deepEqual(storedNames(), ["a.txt"]);
  writeTask("mine again");
  assert.deepEqual(storedNames(), ["b.txt"]);
  files.value = [];
  assert.deepEqual(storedNames(), []);
});
