// Start of a task while the user navigates.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Home } from "../src/components/Home";
import { navigate } from "../src/route";
import { options } from "../src/state/serverOptions";
import * as written from "../src/state/taskDraft";
import type { ServerOptions } from "../src/wire/rest";
import { press, root, settled, renderText, write } from "./testSession";

let asked: { key: string | null; task?: string; model?: string; effort?: string }[] = [];
/** Answers the oldest open request. */
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
  await renderText(<Home />);
  await write("");
});
afterEach(() => render(null, root));

async function startTask(task: string) {
  await write(task);
  press("Start");
  await settled();
}
async function goTo(to: string) {
  navigate(to);
  await renderText(to === "/sessions" ? <Home /> : <p>elsewhere</p>);
}
async function answerRequest(by: Response | Error = session()) {
  answer(by);
  await settled();
}

test("start opens the session and clears the task", async () => {
  await startTask("look around");
  assert.ok(root.querySelector<HTMLButtonElement>("[aria-label='Starting…']")?.disabled);
  await answerRequest();
  assert.equal(location.pathname, "/sessions/s1");
  assert.deepEqual([written.task.value, Object.keys(localStorage)], ["", []]);
});

test("start leaves a user on another page alone", async () => {
  await startTask("look around");
  await goTo("/admin");
  await answerRequest();
  assert.equal(location.pathname, "/admin");
  await goTo("/sessions");
  assert.equal(field().value, "");
});

test("user who returns during the start reaches the session", async () => {
  await startTask("look around");
  await goTo("/admin");
  await goTo("/sessions");
  assert.equal(field().value, "look around");
  press("Starting…");
  field().dispatchEvent(new window.KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  await answerRequest();
  assert.equal(asked.length, 1);
  assert.equal(location.pathname, "/sessions/s1");
});

test("task written during the start is kept and its page stays", async () => {
  await startTask("look around");
  await goTo("/admin");
  await goTo("/sessions");
  await write("another");
  await answerRequest();
  assert.equal(location.pathname, "/sessions");
  assert.equal(field().value, "another");
  render(null, root);
  await renderText(<Home />);
  assert.equal(field().value, "another");
  press("Start");
  await settled();
  assert.notEqual(asked[1]?.key, asked[0]?.key);
  await answerRequest();
});

test("task of another tab is not cleared", async () => {
  await startTask("look around");
  localStorage.setItem("greenroom.task", "from another tab");
  await answerRequest();
  assert.equal(localStorage.getItem("greenroom.task"), "from another tab");
});

test("retry after a lost answer starts the same session and a further start a new one", async () => {
  await startTask("look around");
  await goTo("/admin");
  await answerRequest(new Error("no answer"));
  await goTo("/sessions");
  assert.match(root.textContent ?? "", /no reply from the server/);
  press("Try again");
  await settled();
  await answerRequest();
  await goTo("/sessions");
  await startTask("look around");
  await answerRequest();
  const [first, second, third] = asked.map(({ key }) => key);
  assert.equal(first, second);
  assert.notEqual(second, third);
});

test("chosen effort is part of the new session, and the server's default is shown", async () => {
  const models = [{ name: "gpt-5", demo: false, takes_images: true }];
  options.value = { agents: [], models, defaults: { model: "gpt-5", effort: "low" }, sandbox: {} } as unknown as ServerOptions;
  await settled();
  const [, effort] = root.querySelectorAll<HTMLSelectElement>(".model-choice select");
  assert.equal(effort!.value, "low");
  await startTask("look around");
  await answerRequest();
  await goTo("/sessions");
  const again = root.querySelectorAll<HTMLSelectElement>(".model-choice select")[1]!;
  again.value = "default";
  again.dispatchEvent(new window.Event("change", { bubbles: true }));
  await startTask("look again");
  await answerRequest();
  assert.deepEqual(asked.map(({ effort }) => effort), [undefined, "default"]);
  options.value = null;
});

test("files and choices survive navigation", async () => {
  await write("look around");
  written.attachFiles([new File(["a"], "a.txt")]);
  written.choices.value = { directory: "/tmp" };
  await goTo("/admin");
  await goTo("/sessions");
  assert.match(root.querySelector(".attachments")?.textContent ?? "", /a\.txt/);
  assert.ok(root.querySelector(".task-options"), "the chosen options are visible");
  written.files.value = [];
  written.choices.value = {};
});
