// A task on its way to a session, and a person who does not stand still meanwhile.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Home } from "../src/components/Home";
import { navigate } from "../src/route";
import * as written from "../src/state/task";
import { press, root, settled, shown, write } from "./stage";

let asked: { key: string | null; task?: string; model?: string }[] = [];
/** Answers what was asked first. */
let answer = (_: Response | Error) => {};
let made = 0;

globalThis.fetch = (async (address: string, { method, headers, body }: RequestInit) => {
  if (address === "/api/options") throw new Error("none are needed");
  if (method !== "POST") return new Response('{"items":[],"total":0}');
  asked.push({ key: new Headers(headers).get("idempotency-key"), ...JSON.parse(String(body)) });
  return new Promise<Response>((resolve, reject) => (answer = (with_) => (with_ instanceof Error ? reject(with_) : resolve(with_))));
}) as typeof fetch;
const session = () => new Response(JSON.stringify({ id: `s${(made += 1)}` }));
const field = () => root.querySelector("textarea")!;

beforeEach(async () => {
  asked = [];
  made = 0;
  navigate("/sessions");
  await shown(<Home />);
  await write("");
});
afterEach(() => render(null, root));

async function starts(task: string) {
  await write(task);
  press("Start");
  await settled();
}
async function goes(to: string) {
  navigate(to);
  await shown(to === "/sessions" ? <Home /> : <p>elsewhere</p>);
}
async function isAnswered(by: Response | Error = session()) {
  answer(by);
  await settled();
}

test("whoever waits for the session is taken to it, and nothing of the task is left", async () => {
  await starts("look around");
  assert.ok(root.querySelector<HTMLButtonElement>("[aria-label='Starting…']")?.disabled);
  await isAnswered();
  assert.equal(location.pathname, "/sessions/s1");
  assert.deepEqual([written.task.value, Object.keys(localStorage)], ["", []]);
});

test("whoever went elsewhere meanwhile stays there", async () => {
  await starts("look around");
  await goes("/admin");
  await isAnswered();
  assert.equal(location.pathname, "/admin");
  await goes("/sessions");
  assert.equal(field().value, "");
});

test("whoever came back finds it on its way, and is taken to the session", async () => {
  await starts("look around");
  await goes("/admin");
  await goes("/sessions");
  assert.equal(field().value, "look around");
  press("Starting…");
  field().dispatchEvent(new window.KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  await isAnswered();
  assert.equal(asked.length, 1);
  assert.equal(location.pathname, "/sessions/s1");
});

test("a new task that was begun meanwhile is kept, and its writer left in peace", async () => {
  await starts("look around");
  await goes("/admin");
  await goes("/sessions");
  await write("another");
  await isAnswered();
  assert.equal(location.pathname, "/sessions");
  assert.equal(field().value, "another");
  render(null, root);
  await shown(<Home />);
  assert.equal(field().value, "another");
  press("Start");
  await settled();
  assert.notEqual(asked[1]?.key, asked[0]?.key);
  await isAnswered();
});

test("what another tab has written is not cleared", async () => {
  await starts("look around");
  localStorage.setItem("greenroom.task", "from another tab");
  await isAnswered();
  assert.equal(localStorage.getItem("greenroom.task"), "from another tab");
});

test("an answer that was lost: the same again is the same session, and once more is another", async () => {
  await starts("look around");
  await goes("/admin");
  await isAnswered(new Error("no answer"));
  await goes("/sessions");
  assert.match(root.textContent ?? "", /server does not answer/);
  press("Try again");
  await settled();
  await isAnswered();
  await goes("/sessions");
  await starts("look around");
  await isAnswered();
  const [first, second, third] = asked.map(({ key }) => key);
  assert.equal(first, second);
  assert.notEqual(second, third);
});

test("files and choices of a task are still there when its writer comes back", async () => {
  await write("look around");
  written.attach([new File(["a"], "a.txt")]);
  written.chosen.value = { directory: "/tmp" };
  await goes("/admin");
  await goes("/sessions");
  assert.match(root.querySelector(".attachments")?.textContent ?? "", /a\.txt/);
  assert.ok(root.querySelector(".task-options"), "what is chosen is in sight");
  written.files.value = [];
  written.chosen.value = {};
});
