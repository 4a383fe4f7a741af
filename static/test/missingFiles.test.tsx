// Task after a reload before its files were uploaded.

import { KEY } from "./storedTask";
import assert from "node:assert/strict";
import { test } from "node:test";
import { Home } from "../src/components/Home";
import * as written from "../src/state/taskDraft";
import { press, root, settled, renderText, write } from "./testSession";

const asked: object[] = [];
globalThis.fetch = (async (_: string, { method, body }: RequestInit) => {
  if (method === "POST") asked.push(JSON.parse(String(body)));
  return method === "POST" ? new Response('{"error":{"code":"overloaded","message":"not now"}}', { status: 429 }) : new Response('{"items":[],"total":0}');
}) as typeof fetch;
const label = () => root.querySelector(".send")!.getAttribute("aria-label");
const enter = async () => {
  root.querySelector("textarea")!.dispatchEvent(new window.KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  await settled();
};

test("task does not start without missing files before the user agrees", async () => {
  assert.match(await renderText(<Home />), /a.txt and b.txt are missing: .*Attach them again or start without them\.Start without them/);
  await enter();
  assert.deepEqual([asked, label()], [[], "Some files are missing"]);
  written.attachFiles([new File(["a"], "a.txt")]);
  await settled();
  assert.match(root.textContent ?? "", /b.txt is missing/);
  assert.deepEqual(JSON.parse(localStorage.getItem(KEY) ?? ""), ["b.txt", "a.txt"], "a further reload finds both missing");
  await write("look at them again");
  await enter();
  assert.deepEqual(asked, []);
  assert.match(root.textContent ?? "", /b.txt and c.txt are/, "a new task does not inherit the files");
  press("Start without them");
  await settled();
  assert.equal(asked.length, 1);
  assert.match(root.textContent ?? "", /not now/);
  assert.doesNotMatch(root.textContent ?? "", / missing:/);
  assert.equal(label(), "Start");
});

test("emptied task misses no files", async () => {
  written.missing.value = { names: ["b.txt"], reason: "it is gone" };
  written.files.value = [];
  await write("");
  assert.equal(written.missing.value, null);
  assert.deepEqual(Object.keys(localStorage), []);
});
