// A task that is written in one tab, while another one is loaded and looked at. This page is the other one.

import "./dom";
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

const TASK = "greenroom.task";
const FILES = "greenroom.task.files";

/** What the tab beside this one keeps of its task. */
function theirs(task: string, ...names: string[]): void {
  localStorage.setItem(TASK, task);
  if (names.length > 0) localStorage.setItem(FILES, JSON.stringify(names));
  else localStorage.removeItem(FILES);
}

// They have attached one and not written a word yet, and then this page is loaded.
theirs("", "a.txt");
const { attach, files, lost, openTask, task, write } = await import("../src/state/task");
const loaded = localStorage.getItem(FILES);
const missing = () => lost.peek()?.names ?? [];
const noted = () => JSON.parse(localStorage.getItem(FILES) ?? "[]") as unknown;

beforeEach(() => {
  files.value = [];
  write("");
});

test("a page that is loaded leaves what they have noted as it is", () => {
  assert.equal(loaded, '["a.txt"]');
});

test("words that are taken from there come with what is missing of their files", () => {
  theirs("look at it", "a.txt", "b.txt");
  openTask();
  assert.deepEqual([task.peek(), missing()], ["look at it", ["a.txt", "b.txt"]]);
  openTask();
  assert.deepEqual(missing(), ["a.txt", "b.txt"], "each is missed once");
  attach([new File(["a"], "a.txt")]);
  assert.deepEqual(missing(), ["b.txt"]);
  theirs("look at them", "a.txt", "b.txt", "c.txt");
  openTask();
  assert.deepEqual(missing(), ["b.txt", "c.txt"], "this page has one of them");
});

test("a task of theirs that came without a file misses none", () => {
  theirs("look at it", "a.txt");
  openTask();
  theirs("another one");
  openTask();
  assert.deepEqual(missing(), []);
});

test("nor does none at all, and a look at it takes nothing of what they have noted", () => {
  theirs("look at it", "a.txt");
  openTask();
  theirs("", "of-the-next.txt");
  openTask();
  assert.deepEqual([missing(), noted()], [[], ["of-the-next.txt"]]);
});

test("what is noted are the files of the words that are kept", () => {
  write("mine");
  theirs("theirs", "a.txt");
  attach([new File(["b"], "b.txt")]);
  assert.deepEqual(noted(), ["a.txt"]);
  write("mine again");
  assert.deepEqual(noted(), ["b.txt"]);
  files.value = [];
  assert.deepEqual(noted(), []);
});
