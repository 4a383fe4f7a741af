// Page after a reload in the middle of a start.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";

test("stored attempt continues unchanged and not with another text", async () => {
  localStorage.setItem("greenroom.task", "look around");
  localStorage.setItem("greenroom.task.attempt", JSON.stringify({ "wish": '{"model":"m","task":"look around"}', task: "look around", key: "k", uploaded: {} }));
  const keys: (string | null)[] = [];
  globalThis.fetch = (async (_: string, { method, headers }: RequestInit) => {
    if (method === "POST") keys.push(new Headers(headers).get("idempotency-key"));
    if (keys.length < 3) throw new Error("no answer");
    return new Response('{"id":"s1","items":[],"total":0}');
  }) as typeof fetch;
  const { choices, start, task, writeTask } = await import("../src/state/taskDraft");
  assert.deepEqual([task.value, choices.value.model], ["look around", "m"]);
  await start();
  await start();
  writeTask("look at something else");
  writeTask("look around");
  await start();
  assert.deepEqual(keys.map((key) => key === "k"), [true, true, false]);
  assert.equal(location.pathname, "/sessions/s1");
  assert.equal(localStorage.length, 0);
});
