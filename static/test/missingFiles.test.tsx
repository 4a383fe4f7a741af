// A task whose page was loaded again before its files were brought anywhere.

import { KEY } from "./lost";
import assert from "node:assert/strict";
import { test } from "node:test";
import { Home } from "../src/components/Home";
import * as written from "../src/state/task";
import { press, root, settled, shown, write } from "./stage";

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

test("it does not start without them before its writer has said so", async () => {
  assert.match(await shown(<Home />), /`a.txt` and `b.txt` are not here any more: .*Attach them again, or start without them\.Start without them/);
  await enter();
  assert.deepEqual([asked, label()], [[], "Not all files are there"]);
  written.attach([new File(["a"], "a.txt")]);
  await settled();
  assert.match(root.textContent ?? "", /`b.txt` is not here any more/);
  assert.deepEqual(JSON.parse(localStorage.getItem(KEY) ?? ""), ["b.txt", "a.txt"], "one more reload finds both missing");
  await write("look at them again");
  await enter();
  assert.deepEqual(asked, []);
  assert.match(root.textContent ?? "", /`b.txt` and `c.txt` are/, "what is another task now does not come with that of the first");
  press("Start without them");
  await settled();
  assert.equal(asked.length, 1);
  assert.match(root.textContent ?? "", /not now/);
  assert.doesNotMatch(root.textContent ?? "", /not here any more/);
  assert.equal(label(), "Start");
});

test("where nothing is left of the task, nothing is missed", async () => {
  written.lost.value = { names: ["b.txt"], why: "it is gone" };
  written.files.value = [];
  await write("");
  assert.equal(written.lost.value, null);
  assert.deepEqual(Object.keys(localStorage), []);
});
