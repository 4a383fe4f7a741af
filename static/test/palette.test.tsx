// The palette, while what it offers changes.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { Palette } from "../src/components/Palette";
import { show } from "../src/state/current";
import { learn, newest } from "../src/state/list";
import { LiveSession } from "../src/state/live";
import type { ServerFrame, Session } from "../src/wire/frame";
import { Script } from "./frames";
import { root, settled, shown, Stage, write } from "./stage";

Object.assign(window.HTMLDialogElement.prototype, { showModal() {}, close() {} });
window.HTMLElement.prototype.scrollIntoView = () => {};

const texts = () => [...root.querySelectorAll(".palette-text")].map((one) => one.textContent);
const chosen = () => root.querySelector("[aria-selected=true] .palette-text")?.textContent;

async function key(name: string): Promise<void> {
  root.querySelector("input")!.dispatchEvent(new window.KeyboardEvent("keydown", { key: name, bubbles: true }));
  await settled();
}

/** What a poll brings. */
async function lists(...titles: string[]): Promise<void> {
  newest.value = titles.map((title) => ({ id: title, title, state: "idle", last_seq: 1 }) as Session);
  learn(newest.value);
  await settled();
}

afterEach(() => render(null, root));

test("what is chosen in the palette stays that, and where it is, whatever happens meanwhile", async () => {
  const stage = new Stage();
  const script = new Script().state("running");
  stage.play(script);
  const hide = show(stage.live);
  await lists("one");
  await shown(<Palette />);
  await write("p", "input");
  const before = texts();
  while (chosen() !== "Pause") await key("ArrowDown");
  stage.play(script.state("idle"));
  await lists("pear", "one");
  assert.equal(chosen(), "Pause");
  assert.deepEqual(texts().slice(0, before.length), before);
  assert.deepEqual(texts().slice(before.length), ["pear", "Stop the sandbox"]);
  assert.match(root.querySelector("[aria-disabled=true][aria-selected=true]")?.textContent ?? "", /not possible now/);
  await key("Enter");
  assert.deepEqual(stage.sent, [], "nothing else is done in its place");
  await write("pear", "input");
  assert.deepEqual([chosen(), texts()], ["pear", ["pear"]], "who types on sees what there is");
  hide();
});

test("what became impossible in the last moment is not done, and said", async () => {
  const stage = new Stage();
  const script = new Script().state("idle").see("queue", "", { items: [{ item: "m", content: "wait" }] });
  stage.play(script);
  const hide = show(stage.live);
  await shown(<Palette />);
  await write("resume", "input");
  stage.play(script.see("queue", "", { items: [] }));
  await key("Enter");
  assert.deepEqual(stage.sent, []);
  assert.match(root.querySelector("[aria-disabled=true]")?.textContent ?? "", /Resume.*not possible now/);
  hide();
});

test("an act on one session is not done to the next", async () => {
  const stage = new Stage();
  const next = new LiveSession("s2", (listener) => {
    setImmediate(() => listener.received(new Script().state("idle").frames as ServerFrame[]));
    return { send: () => assert.fail("it was done to the next"), retryNow() {}, close() {} };
  });
  stage.play(new Script().state("idle"));
  show(stage.live);
  await shown(<Palette />);
  await write("stop the sandbox", "input");
  const hide = show(next);
  await settled();
  await key("Enter");
  assert.deepEqual(stage.sent, []);
  hide();
});
