// The queue, while somebody changes what waits in it and the agent, or somebody else, takes it away.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Composer } from "../src/components/Composer";
import { Queue } from "../src/components/Queue";
import "../src/refocus";
import { Script } from "./frames";
import { press, root, settled, shown, Stage, write } from "./stage";

const WAITING = [
  { item: "a", content: "first" },
  { item: "b", content: "second", attachments: ["uploads/plan.md"] },
  { item: "c", content: "third" },
];
const editor = () => root.querySelector<HTMLTextAreaElement>(".queue textarea");
const lines = () => [...root.querySelectorAll(".queue li")].map((line) => line.querySelector("textarea")?.value ?? line.querySelector(".queue-text")?.textContent);
const said = () => root.querySelector(".queue [role=alert]")?.textContent;
const key = (name: string) => editor()!.dispatchEvent(new window.KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));

let stage: Stage;
let script: Script;
const leaves = async (...items: string[]) => {
  stage.play(script.see("queue", "", { items: WAITING.filter(({ item }) => !items.includes(item)) }));
  await settled();
};
const isTaken = (item: string) => void script.see("chat", "", {}, { item });

beforeEach(async () => {
  localStorage.clear();
  stage = new Stage();
  script = new Script().state("running").see("queue", "", { items: WAITING });
  stage.play(script);
  await shown(<><Queue live={stage.live} /><Composer live={stage.live} /></>);
  // The second of them is changed.
  [...root.querySelectorAll<HTMLElement>("[aria-label=Edit]")][1]!.click();
  await settled();
});
afterEach(() => render(null, root));

test("who changes a message that the agent takes goes on where they write, and sends that alone", async () => {
  await write("an unrelated draft", ".composer textarea");
  await write("second, or", ".queue textarea");
  const field = editor();
  field!.focus();
  isTaken("a");
  isTaken("b");
  await leaves("a", "b");
  assert.equal(editor(), field, "the same field");
  assert.equal(document.activeElement, field);
  assert.match(said() ?? "", /The agent has taken this message as it was/);
  await write("second, or fourth", ".queue textarea");
  key("Enter");
  await settled();
  assert.deepEqual(stage.sent.map((wish) => "args" in wish && wish.args), [{ content: "second, or fourth", mode: "queue" }]);
  assert.deepEqual(lines(), ["third"]);
  assert.equal(root.querySelector<HTMLTextAreaElement>(".composer textarea")!.value, "an unrelated draft");
});

test("one that somebody removed says so, and can be queued again with its files", async () => {
  await write("second, or", ".queue textarea");
  await leaves("b");
  assert.match(said() ?? "", /This message was removed from the queue/);
  press("Queue again");
  await settled();
  assert.deepEqual(stage.sent.map((wish) => "args" in wish && wish.args), [
    { content: "second, or", mode: "queue", attachments: ["uploads/plan.md"] },
  ]);
});

test("it stays in its place, whatever else leaves, also where nothing was changed yet", async () => {
  await leaves("b");
  assert.deepEqual(lines(), ["first", "second", "third"]);
  await leaves("a", "b");
  assert.deepEqual(lines(), ["second", "third"]);
  await leaves("a", "b", "c");
  assert.deepEqual(lines(), ["second"]);
  await leaves("a", "b");
  assert.deepEqual(lines(), ["second", "third"]);
  key("Escape");
  await settled();
  assert.deepEqual(lines(), ["third"]);
  assert.deepEqual(stage.sent, []);
});

test("one that nobody changes leaves at once", async () => {
  await leaves("a");
  assert.deepEqual(lines(), ["second", "third"]);
  assert.equal(said(), undefined);
});
