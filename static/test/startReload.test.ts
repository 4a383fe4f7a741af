// A page that was loaded again while a task was on its way.

import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { beginWith, type Attempt } from "../src/state/begin";
import { readAttempt } from "../src/state/task";
import { answersUploads } from "./upload";

let asked: { path: string; key: string | null; body: unknown }[] = [];
let isAway = false;

globalThis.fetch = (async (path: string, { method, headers, body }: RequestInit) => {
  if (method === "POST") asked.push({ path, key: new Headers(headers).get("idempotency-key"), body: JSON.parse(String(body)) });
  if (isAway) throw new Error("no answer");
  return new Response('{"id":"s1","items":[],"total":0}');
}) as typeof fetch;

/** Begins something, and comes back to what would be left of it if the page were loaded now. */
async function reloaded(wish: Parameters<typeof beginWith>[1], files: readonly File[], isLost: boolean) {
  asked = [];
  let left = "";
  const last = {
    held: null as Attempt | null,
    get current() {
      return this.held;
    },
    set current(attempt: Attempt | null) {
      this.held = attempt;
      left = JSON.stringify(attempt);
    },
  };
  isAway = isLost;
  await beginWith(last, wish, files).catch(() => {});
  isAway = false;
  return { ...readAttempt(left, wish.task)!, before: asked.splice(0) };
}

test("the same task started again leads to the same session", async () => {
  const task = "look around";
  const { attempt, chosen, before } = await reloaded({ model: "m", agent: "a", budget: " 0.50", task }, [], true);
  assert.deepEqual(chosen, { model: "m", agent: "a", budget: "0.5" });
  await beginWith({ current: attempt }, { ...chosen, task }, []);
  assert.deepEqual(asked, before);
});

test("a task that came with files is given once, to the session that was made for it", async () => {
  answersUploads(() => 201);
  const task = "look at it";
  const { attempt, chosen, before } = await reloaded({ task }, [new File(["a"], "a.txt")], false);
  await beginWith({ current: attempt }, { ...chosen, task }, []);
  assert.deepEqual(asked, before);
  assert.deepEqual(asked.at(-1)?.body, { content: task, attachments: ["uploads/a.txt"] });
});

test("what was written while another task started is a task of its own", async () => {
  const { attempt } = await reloaded({ task: "A" }, [], true);
  assert.equal(readAttempt(JSON.stringify(attempt), "A")?.attempt.key, attempt.key);
  assert.equal(readAttempt(JSON.stringify(attempt), "B"), null);
});

test("what nobody has left, or in a form that nobody knows, is nothing", () => {
  for (const text of [null, "", "{", "{}", "[1]", '{"wish":"{"}']) assert.equal(readAttempt(text, ""), null, String(text));
});
