// Page reloaded while a task was starting.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { startWith, type StartAttempt } from "../src/state/startTask";
import { attemptJson, parseAttempt } from "../src/state/taskDraft";
import { answerUploads } from "./fakeUploads";

let asked: { path: string; key: string | null; body: unknown }[] = [];
let isAway = false;

globalThis.fetch = (async (path: string, { method, headers, body }: RequestInit) => {
  if (method === "POST") asked.push({ path, key: new Headers(headers).get("idempotency-key"), body: JSON.parse(String(body)) });
  if (isAway) throw new Error("no answer");
  return new Response('{"id":"s1","items":[],"total":0}');
}) as typeof fetch;

/** Starts a task and returns the state after a reload at this point. */
async function stateAfterReload(task: Parameters<typeof startWith>[1], files: readonly File[], isLost: boolean) {
  asked = [];
  let left = "";
  const last = {
    held: null as StartAttempt | null,
    get current() {
      return this.held;
    },
    set current(attempt: StartAttempt | null) {
      this.held = attempt;
      left = attempt ? attemptJson(attempt) : "";
    },
  };
  isAway = isLost;
  await startWith(last, task, files).catch(() => {});
  isAway = false;
  return { ...parseAttempt(left, task.task)!, before: asked.splice(0) };
}

test("same task after a reload reaches the same session", async () => {
  const task = "look around";
  const { attempt, chosen, before } = await stateAfterReload({ model: "m", agent: "a", budget: " 0.50", task }, [], true);
  assert.deepEqual(chosen, { model: "m", agent: "a", budget: "0.5" });
  await startWith({ current: attempt }, { ...chosen, task }, []);
  assert.deepEqual(asked, before);
});

test("task with files is sent once to the session created for it", async () => {
  answerUploads(() => 201);
  const task = "look at it";
  const { attempt, chosen, before } = await stateAfterReload({ task }, [new File(["a"], "a.txt")], false);
  await startWith({ current: attempt }, { ...chosen, task }, []);
  assert.deepEqual(asked, before);
  assert.deepEqual(asked.at(-1)?.body, { content: task, attachments: ["uploads/a.txt"] });
});

test("task written during a start is a new task", async () => {
  const { attempt } = await stateAfterReload({ task: "A" }, [], true);
  assert.equal(parseAttempt(attemptJson(attempt), "A")?.attempt.key, attempt.key);
  assert.equal(parseAttempt(attemptJson(attempt), "B"), null);
});

test("missing or invalid stored attempt is ignored", () => {
  for (const text of [null, "", "{", "{}", "[1]", '{"wish":"{"}']) assert.equal(parseAttempt(text, ""), null, String(text));
});
