// Queue edits while messages leave the queue.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Composer } from "../src/components/Composer";
import { Queue } from "../src/components/Queue";
import "../src/dom/restoreFocus";
import { FrameScript } from "./frameScript";
import { press, root, settled, renderText, TestSession, write } from "./testSession";

const WAITING = [
  { item: "a", content: "first" },
  { item: "b", content: "second", attachments: ["uploads/plan.md"] },
  { item: "c", content: "third" },
];
const editor = () => root.querySelector<HTMLTextAreaElement>(".queue textarea");
const lines = () => [...root.querySelectorAll(".queue li")].map((line) => line.querySelector("textarea")?.value ?? line.querySelector(".queue-text")?.textContent);
const notice = () => root.querySelector(".queue [role=alert]")?.textContent;
const key = (name: string) => editor()!.dispatchEvent(new window.KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));

let testSession: TestSession;
let script: FrameScript;
const removeFromQueue = async (...items: string[]) => {
  testSession.play(script.addObservation("queue", "", { items: WAITING.filter(({ item }) => !items.includes(item)) }));
  await settled();
};
const deliver = (item: string) => void script.addObservation("chat", "", {}, { item });

beforeEach(async () => {
  localStorage.clear();
  testSession = new TestSession();
  script = new FrameScript().state("running").addObservation("queue", "", { items: WAITING });
  testSession.play(script);
  await renderText(<><Queue live={testSession.live} /><Composer live={testSession.live} /></>);
  // Edits the second message.
  [...root.querySelectorAll<HTMLElement>("[aria-label=Edit]")][1]!.click();
  await settled();
});
afterEach(() => render(null, root));

test("edit of a delivered message stays open and is sent alone", async () => {
  await write("an unrelated draft", ".composer textarea");
  await write("second, or", ".queue textarea");
  const field = editor();
  field!.focus();
  deliver("a");
  deliver("b");
  await removeFromQueue("a", "b");
  assert.equal(editor(), field, "the same field");
  assert.equal(document.activeElement, field);
  assert.match(notice() ?? "", /The agent already received this message/);
  await write("second, or fourth", ".queue textarea");
  key("Enter");
  await settled();
  assert.deepEqual(testSession.sent.map((request) => "args" in request && request.args), [{ content: "second, or fourth", mode: "queue" }]);
  assert.deepEqual(lines(), ["third"]);
  assert.equal(root.querySelector<HTMLTextAreaElement>(".composer textarea")!.value, "an unrelated draft");
});

test("edit of a removed message can be queued again with its files", async () => {
  await write("second, or", ".queue textarea");
  await removeFromQueue("b");
  assert.match(notice() ?? "", /This message was removed/);
  press("Queue again");
  await settled();
  assert.deepEqual(testSession.sent.map((request) => "args" in request && request.args), [
    { content: "second, or", mode: "queue", attachments: ["uploads/plan.md"] },
  ]);
});

test("edit keeps its place while other messages leave", async () => {
  await removeFromQueue("b");
  assert.deepEqual(lines(), ["first", "second", "third"]);
  await removeFromQueue("a", "b");
  assert.deepEqual(lines(), ["second", "third"]);
  await removeFromQueue("a", "b", "c");
  assert.deepEqual(lines(), ["second"]);
  await removeFromQueue("a", "b");
  assert.deepEqual(lines(), ["second", "third"]);
  key("Escape");
  await settled();
  assert.deepEqual(lines(), ["third"]);
  assert.deepEqual(testSession.sent, []);
});

test("unedited message leaves at once", async () => {
  await removeFromQueue("a");
  assert.deepEqual(lines(), ["second", "third"]);
  assert.equal(notice(), undefined);
});
