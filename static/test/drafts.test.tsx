// What is being written in a session outlives the page, and a look at another session.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Composer } from "../src/components/Composer";
import { Queue } from "../src/components/Queue";
import { show } from "../src/state/current";
import "../src/state/missed";
import { Uploads } from "../src/state/uploads";
import { Script } from "./frames";
import { press, root, settled, shown, Stage, write } from "./stage";

const CHANGE = "greenroom.draft.s1.change.m";
const kept = () => Object.keys(localStorage).sort();
const waiting = () => new Script().see("queue", "", { items: [{ item: "m", content: "as it was" }] });
const editor = () => root.querySelector("textarea");

beforeEach(() => localStorage.clear());
afterEach(() => render(null, root));

/** A page that comes to a session in whose queue one message waits. */
async function comes(): Promise<{ stage: Stage; script: Script }> {
  const stage = new Stage();
  const script = waiting();
  stage.play(script);
  await shown(<Queue live={stage.live} />);
  return { stage, script };
}

async function edits(text: string) {
  press("Edit");
  await settled();
  await write(text);
}

test("attached files that are there are attached after a reload, until they are sent, and the others are missed", () => {
  const uploads = new Uploads("s1");
  uploads.all.value = [
    { id: "a", name: "plan.md", size: 3, progress: 1, path: "uploads/plan.md" },
    { id: "b", name: "big.bin", size: 9, progress: 0.5 },
    { id: "c", name: "bad.bin", size: 9, progress: 0, problem: "it is too large" },
  ];
  uploads.take(["uploads/message.txt"]);
  const after = new Uploads("s1");
  assert.deepEqual(after.paths, ["uploads/plan.md", "uploads/message.txt"]);
  assert.deepEqual(after.all.value.map(({ name, size }) => [name, size]), [["plan.md", 3], ["message.txt", null], ["big.bin", 9], ["bad.bin", 9]]);
  assert.equal(after.isIncomplete, true, "the message waits for them");
  for (const { id, path, problem } of after.all.value.filter(({ path }) => path === undefined)) {
    assert.match(problem ?? "", /was not there yet/, path);
    after.remove(id);
  }
  assert.equal(after.isIncomplete, false);
  after.remove(after.all.value[0]!.id);
  assert.deepEqual(new Uploads("s1").paths, ["uploads/message.txt"]);
  after.clear();
  assert.deepEqual(kept(), []);
  assert.deepEqual(new Uploads("s1").paths, []);
});

test("a change to a message that waits is gone on with", async () => {
  await comes();
  await edits("as it shall be");
  render(null, root);
  await comes();
  assert.equal(editor()?.value, "as it shall be");
  assert.equal(document.activeElement, document.body, "nobody asked for the focus");
});

test("it is kept until it is saved, called off, or none any more", async () => {
  for (const end of ["Keep the change", "Escape", "as it was ", " "]) {
    const { stage } = await comes();
    await edits("as it shall be");
    assert.deepEqual(kept(), [CHANGE]);
    if (end === "Escape") editor()!.dispatchEvent(new window.KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
    else if (end === "Keep the change") press(end);
    else await write(end);
    await settled();
    assert.equal(localStorage.getItem(CHANGE), null, end);
    assert.equal(stage.sent.length, end === "Keep the change" ? 1 : 0);
    for (const { id } of stage.sent) stage.say({ status: "accepted", id, seq: 1 });
    assert.deepEqual(kept(), [], "what was saved is on its way until it is taken");
    render(null, root);
  }
});

test("where the message leaves the queue, the change stays in its place and is kept", async () => {
  const { stage, script } = await comes();
  await edits("as it shall be");
  stage.play(script.see("chat", "as it was", {}, { item: "m" }).see("queue", "", { items: [] }));
  await settled();
  assert.deepEqual([editor()?.value, localStorage.getItem(CHANGE)], ["as it shall be", "as it shall be"]);
  press("Dismiss");
  await settled();
  assert.deepEqual([editor(), kept(), stage.sent], [null, [], []]);
});

test("also where that was while nobody looked, and not before it is known", async () => {
  localStorage.setItem(CHANGE, "as it shall be");
  localStorage.setItem("greenroom.draft.s1.change.n", "still waits");
  const stage = new Stage();
  const hide = show(stage.live);
  assert.equal(stage.live.state.value.sending.length, 0);
  const script = new Script().see("chat", "as it was", {}, { item: "m" }).see("queue", "", { items: [{ item: "n", content: "it waits" }] });
  stage.play(script);
  stage.say({ status: "synced", seq: 2 });
  const missed = stage.live.state.value.sending;
  assert.deepEqual(missed.map(({ wish }) => wish.action === "message" && wish.args.content), ["as it shall be"]);
  assert.match(missed[0]?.refusal ?? "", /taken this message as it was/);
  assert.deepEqual(kept(), ["greenroom.draft.s1.change.n", `greenroom.unsent.s1.${missed[0]?.id}`]);
  hide();
});

test("of a session that is gone nothing is kept, and all of any other", () => {
  const others = ["greenroom.draft.s10", "greenroom.draft.s10.files", "greenroom.layout.s1", "greenroom.task"];
  for (const key of ["greenroom.draft.s1", "greenroom.draft.s1.files", CHANGE, "greenroom.unsent.s1.a", ...others]) localStorage.setItem(key, "x");
  new Stage().listener.refused("no_such_session");
  assert.deepEqual(kept(), others);
});

/** What another page keeps, or forgets, and what the browser tells this one of it. */
function elsewhere(key: string, newValue: string | null): void {
  const oldValue = localStorage.getItem(key);
  if (newValue === null) localStorage.removeItem(key);
  else localStorage.setItem(key, newValue);
  window.dispatchEvent(new window.StorageEvent("storage", { key, oldValue, newValue }));
}

const goes = () => window.dispatchEvent(new window.Event("pagehide"));
const DRAFT = "greenroom.draft.s1";

test("what is written outlives another page on the same session", async () => {
  await shown(<Composer live={new Stage().live} />);
  await write("mine");
  elsewhere(DRAFT, "theirs");
  assert.equal(localStorage.getItem(DRAFT), "theirs", "else each would put back its own for ever");
  elsewhere(DRAFT, null);
  assert.equal(localStorage.getItem(DRAFT), "mine", "they have sent theirs");
  elsewhere(DRAFT, "theirs again");
  goes();
  assert.equal(localStorage.getItem(DRAFT), "mine", "this page is loaded again");
  elsewhere(DRAFT, "and again");
  render(null, root);
  assert.equal(localStorage.getItem(DRAFT), "mine", "and so it is after a look at another session");
  elsewhere(DRAFT, null);
  goes();
  assert.deepEqual(kept(), []);
});

test("what was sent there, or is gone on with there, is not put back", async () => {
  localStorage.setItem(DRAFT, "half a thought");
  await shown(<Composer live={new Stage().live} />);
  elsewhere(DRAFT, "half a thought, and the rest");
  goes();
  assert.equal(localStorage.getItem(DRAFT), "half a thought, and the rest");
  await write("a thought");
  elsewhere(DRAFT, null);
  assert.deepEqual(kept(), []);
  await write("mine");
  await write("");
  elsewhere(DRAFT, "theirs");
  goes();
  elsewhere(DRAFT, null);
  assert.deepEqual(kept(), []);
});

test("so do a change to a message that waits, and attached files", async () => {
  await comes();
  await edits("as it shall be");
  elsewhere(CHANGE, "as they want it");
  elsewhere(CHANGE, null);
  assert.equal(localStorage.getItem(CHANGE), "as it shall be");
  const uploads = new Uploads("s2");
  uploads.take(["uploads/plan.md"]);
  elsewhere("greenroom.draft.s2.files", "[]");
  elsewhere("greenroom.draft.s2.files", null);
  assert.deepEqual(new Uploads("s2").paths, ["uploads/plan.md"]);
  uploads.clear();
});

const FILES = (session: string) => `greenroom.draft.${session}.files`;
const file = (name: string, path?: string) => ({ name, size: 3, path });
const names = ({ all }: Uploads) => all.value.map(({ name, path }) => (path === undefined ? `${name} is missing` : name));

test("a page that is done with its words leaves those of another alone", async () => {
  const stage = new Stage();
  stage.play(new Script());
  await shown(<Composer live={stage.live} />);
  await write("mine");
  localStorage.setItem("greenroom.draft.s1", "theirs");
  await write("");
  assert.equal(localStorage.getItem("greenroom.draft.s1"), "theirs");
  await write("mine");
  await write("");
  assert.equal(localStorage.getItem("greenroom.draft.s1"), null);
});

test("what is on its way in one page is missed there after a reload, and nowhere else", () => {
  const uploads = new Uploads("s4");
  uploads.take(["uploads/plan.md"]);
  uploads.all.value = [...uploads.all.value, { id: "b", name: "big.bin", size: 9, progress: 0.5 }];
  assert.equal(localStorage.getItem(FILES("s4")), JSON.stringify([{ name: "plan.md", size: null, path: "uploads/plan.md" }]));
  elsewhere(FILES("s4"), JSON.stringify([file("theirs.md", "uploads/theirs.md")]));
  elsewhere(FILES("s4"), null);
  assert.deepEqual(names(uploads), ["plan.md", "big.bin is missing"], "it is no file of theirs");
  assert.deepEqual(names(new Uploads("s4")), ["plan.md", "big.bin is missing"]);
  const mine = sessionStorage.getItem(FILES("s4"))!;
  sessionStorage.removeItem(FILES("s4"));
  assert.deepEqual(names(new Uploads("s4")), ["plan.md"], "another page");
  sessionStorage.setItem(FILES("s4"), mine);
  uploads.clear();
  assert.deepEqual([kept(), sessionStorage.length], [[], 0]);
});

test("a file that is taken back before it is on its way is not sent", async () => {
  let sent = 0;
  class Request {
    upload = {};
    open() {}
    setRequestHeader() {}
    abort() {}
    send() {
      sent += 1;
    }
  }
  Object.assign(globalThis, { XMLHttpRequest: Request });
  const uploads = new Uploads("s3");
  const added = uploads.add([new File(["a"], "a.txt")]);
  uploads.remove(uploads.all.value[0]!.id);
  assert.deepEqual([await added, sent], ["taken back", 0]);
});
