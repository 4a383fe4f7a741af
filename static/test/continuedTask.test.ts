// The page that comes after one that was loaded anew in the middle of a start.

import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";

test("what was begun before is gone on with as it was, and not with other words", async () => {
  localStorage.setItem("greenroom.task", "look around");
  localStorage.setItem("greenroom.task.attempt", JSON.stringify({ wish: '{"model":"m","task":"look around"}', task: "look around", key: "k", uploaded: {} }));
  const keys: (string | null)[] = [];
  globalThis.fetch = (async (_: string, { method, headers }: RequestInit) => {
    if (method === "POST") keys.push(new Headers(headers).get("idempotency-key"));
    if (keys.length < 3) throw new Error("no answer");
    return new Response('{"id":"s1","items":[],"total":0}');
  }) as typeof fetch;
  const { chosen, start, task, write } = await import("../src/state/task");
  assert.deepEqual([task.value, chosen.value.model], ["look around", "m"]);
  await start();
  await start();
  write("look at something else");
  write("look around");
  await start();
  assert.deepEqual(keys.map((key) => key === "k"), [true, true, false]);
  assert.equal(location.pathname, "/sessions/s1");
  assert.equal(localStorage.length, 0);
});
