// Settings of this browser.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Home } from "../src/components/Home";
import { Settings } from "../src/components/Settings";
import { defaultModel } from "../src/state/defaultModel";
import { overlay } from "../src/state/keys";
import { sendMode } from "../src/state/sendMode";
import { options } from "../src/state/serverOptions";
import { startTask } from "../src/state/startTask";
import { task } from "../src/state/taskDraft";
import { theme } from "../src/theme";
import { signedOut, type ServerOptions } from "../src/wire/rest";
import { press, root, settled, renderText } from "./testSession";

Object.assign(window.HTMLDialogElement.prototype, { showModal() {}, close() {} });

let asked: { method: string; address: string; body: string }[] = [];
let status = 200;
globalThis.fetch = (async (address: string, { method, body }: RequestInit) => {
  asked.push({ method: method ?? "GET", address, body: String(body) });
  return new Response('{"id":"s1","items":[],"total":0}', { status });
}) as typeof fetch;

beforeEach(() => {
  asked = [];
  status = 200;
  options.value = {
    version: "1.2.3",
    agents: [{ name: "greenroom" }],
    models: [{ name: "demo", demo: true }, { name: "large" }, { name: "far", needs: "FAR_KEY" }],
    defaults: { model: "demo", effort: null },
  } as unknown as ServerOptions;
});
afterEach(() => {
  render(null, root);
  localStorage.clear();
  signedOut.value = false;
});

const entry = (text: string) => [...root.querySelectorAll<HTMLElement>(".settings button")].find((one) => one.textContent?.includes(text))!;

async function choose(select: HTMLSelectElement, value: string) {
  select.value = value;
  select.dispatchEvent(new window.Event("change", { bubbles: true }));
  await settled();
}

test("colours and Enter are chosen at once", async () => {
  await renderText(<Settings />);
  entry("dark").click();
  entry("Steers").click();
  await settled();
  assert.deepEqual([theme.value, document.documentElement.dataset.theme, sendMode.value], ["dark", "dark", "steer"]);
  assert.deepEqual([entry("dark"), entry("light"), entry("Steers"), entry("Queues")].map((one) => one.getAttribute("aria-pressed")), ["true", "false", "true", "false"]);
  entry("system").click();
  entry("Queues").click();
  assert.doesNotMatch(document.cookie, /greenroom_theme/);
  assert.equal(sendMode.value, "queue");
});

test("settings have sections with headings, the version and the API docs", async () => {
  const text = await renderText(<Settings />);
  assert.deepEqual([...root.querySelectorAll("h3")].map((one) => one.textContent), ["This browser", "Help", "Server", "Approval rules", "Signed-in browsers"]);
  assert.match(text, /Version 1\.2\.3/);
  assert.ok(root.querySelector('.settings a[href="/api/docs"]'));
  entry("Keyboard shortcuts").click();
  assert.equal(overlay.value, "shortcuts");
  overlay.value = null;
});

test("new task starts with the chosen model until the server lacks it", async () => {
  await renderText(<Settings />);
  const select = root.querySelector("select")!;
  assert.deepEqual([...select.options].map((one) => [one.value, one.disabled]), [["", false], ["demo", false], ["large", false], ["far", true]]);
  await choose(select, "large");
  assert.equal(localStorage.getItem("greenroom.default-model"), "large");
  await renderText(<Home />);
  const form = root.querySelector<HTMLSelectElement>(".task-choices select")!;
  assert.equal(form.value, "large");
  task.value = "go";
  await startTask();
  const created = () => JSON.parse(asked.findLast(({ method }) => method === "POST")!.body) as { model?: string };
  assert.equal(created().model, "large");
  // A choice in the form is for this task only.
  await choose(form, "demo");
  task.value = "again";
  await startTask();
  assert.deepEqual([created().model, defaultModel.value], ["demo", "large"]);
  options.value = { ...options.value!, models: options.value!.models.slice(0, 1) };
  assert.equal(defaultModel.value, undefined);
  task.value = "third";
  await startTask();
  assert.equal(created().model, undefined);
});

test("sign-out asks the server and shows the sign-in page", async () => {
  await renderText(<Settings />);
  status = 503;
  press("Sign out");
  await settled();
  assert.equal(signedOut.value, false);
  assert.match(root.querySelector("[role=alert]")!.textContent!, /Couldn't sign out: the server answered 503/);
  status = 200;
  press("Sign out");
  await settled();
  assert.deepEqual(asked.filter(({ method }) => method === "POST").map(({ method, address }) => `${method} ${address}`), ["POST /api/sign-out", "POST /api/sign-out"]);
  assert.equal(signedOut.value, true);
});
