// Ways to send a message: by the setting, by a chord, and by the menu beside the button.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, before, test } from "node:test";
import { render } from "preact";
import { Composer } from "../src/components/Composer";
import { loadLazy } from "../src/loadLazy";
import { setSendMode } from "../src/state/sendMode";
import { FrameScript } from "./frameScript";
import { press, renderText, root, settled, TestSession, write } from "./testSession";

before(loadLazy);
afterEach(() => {
  render(null, root);
  setSendMode("queue");
});

async function atWork(): Promise<TestSession> {
  const session = new TestSession();
  session.play(new FrameScript().state("running"));
  await renderText(<Composer live={session.live} />);
  return session;
}

async function enter(ctrlKey: boolean): Promise<void> {
  const event = new window.KeyboardEvent("keydown", { key: "Enter", ctrlKey, bubbles: true, cancelable: true });
  root.querySelector("textarea")!.dispatchEvent(event);
  await settled();
}

const modes = (session: TestSession) => session.sent.map((sent) => (sent.action === "message" ? sent.args.mode : sent.action));

test("setting decides what Enter does while the agent works, and Ctrl+Enter does the other", async () => {
  const session = await atWork();
  for (const mode of ["queue", "steer"] as const) {
    setSendMode(mode);
    await settled();
    assert.ok(root.querySelector(`.send[aria-label=${mode === "queue" ? "Queue" : "Steer"}]`));
    assert.match(root.querySelector(".keys")?.textContent ?? "", mode === "queue" ? /^Enter queues.*steers/ : /^Enter steers.*queues/);
    await write("one");
    await enter(false);
    await write("two");
    await enter(true);
  }
  assert.deepEqual(modes(session), ["queue", "steer", "steer", "queue"]);
});

test("menu beside the button queues, steers and interrupts", async () => {
  const session = await atWork();
  const choose = async (entry: RegExp) => {
    press("Queue, steer or interrupt");
    await settled();
    const found = [...root.querySelectorAll<HTMLButtonElement>(".menu-entry")].find((one) => entry.test(one.textContent ?? ""))!;
    found.click();
    await settled();
    assert.equal(root.querySelector(".popover-panel"), null);
  };
  for (const entry of [/^Queue/, /^Steer/]) {
    await write("text");
    await choose(entry);
  }
  press("Queue, steer or interrupt");
  await settled();
  const disabled = [...root.querySelectorAll<HTMLButtonElement>(".menu-entry")].map((entry) => entry.disabled);
  assert.deepEqual(disabled, [true, true, false], "an empty field sends nothing");
  press("Queue, steer or interrupt");
  await write("kept");
  await choose(/^Interrupt/);
  assert.deepEqual(modes(session), ["queue", "steer", "interrupt"]);
  assert.equal(root.querySelector("textarea")!.value, "kept", "an interrupt sends nothing");
});

test("resting session has one way to send", async () => {
  const session = new TestSession();
  session.play(new FrameScript().state("idle"));
  setSendMode("steer");
  await renderText(<Composer live={session.live} />);
  assert.equal(root.querySelector(".send-more"), null);
  await write("go");
  await enter(true);
  assert.deepEqual(modes(session), ["queue"]);
});
