// Drafts of a session across reloads and visits to another session.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Composer } from "../src/components/Composer";
import { Queue } from "../src/components/Queue";
import { showSession } from "../src/state/currentSession";
import "../src/state/orphanedEdits";
import { UploadList } from "../src/state/uploads";
import { FrameScript } from "./frameScript";
import { press, root, settled, renderText, TestSession, write } from "./testSession";

const CHANGE = "greenroom.draft.s1.change.m";
const storedKeys = () => Object.keys(localStorage).sort();
const waiting = () => new FrameScript().addObservation("queue", "", { items: [{ item: "m", content: "as it was" }] });
const editor = () => root.querySelector("textarea");

beforeEach(() => localStorage.clear());
afterEach(() => render(null, root));

/** Opens a page on a session with one queued message. */
async function openSession(): Promise<{ testSession: TestSession; script: FrameScript }> {
  const testSession = new TestSession();
  const script = waiting();
  testSession.play(script);
  await renderText(<Queue live={testSession.live} />);
  return { testSession, script };
}

async function editMessage(text: string) {
  press("Edit");
  await settled();
  await write(text);
}

test("uploaded files survive a reload until sent, others are marked as missing", () => {
  const uploads = new UploadList("s1");
  uploads.all.value = [
    { id: "a", name: "plan.md", size: 3, progress: 1, path: "uploads/plan.md" },
    { id: "b", name: "big.bin", size: 9, progress: 0.5 },
    { id: "c", name: "bad.bin", size: 9, progress: 0, problem: "it is too large" },
  ];
  uploads.take(["uploads/message.txt"]);
  const after = new UploadList("s1");
  assert.deepEqual(after.paths, ["uploads/plan.md", "uploads/message.txt"]);
  assert.deepEqual(after.all.value.map(({ name, size }) => [name, size]), [["plan.md", 3], ["message.txt", null], ["big.bin", 9], ["bad.bin", 9]]);
  assert.equal(after.isIncomplete, true, "the message waits for the files");
  for (const { id, path, problem } of after.all.value.filter(({ path }) => path === undefined)) {
    assert.match(problem ?? "", /interrupted by a page reload/, path);
    after.remove(id);
  }
  assert.equal(after.isIncomplete, false);
  after.remove(after.all.value[0]!.id);
  assert.deepEqual(new UploadList("s1").paths, ["uploads/message.txt"]);
  after.clear();
  assert.deepEqual(storedKeys(), []);
  assert.deepEqual(new UploadList("s1").paths, []);
});

test("edit of a queued message survives a reload", async () => {
  await openSession();
  await editMessage("as it shall be");
  render(null, root);
  await openSession();
  assert.equal(editor()?.value, "as it shall be");
  assert.equal(document.activeElement, document.body, "the edit does not take the focus");
});

test("stored edit is removed when saved, cancelled or without a change", async () => {
  for (const end of ["Save change", "Escape", "as it was ", " "]) {
    const { testSession } = await openSession();
    await editMessage("as it shall be");
    assert.deepEqual(storedKeys(), [CHANGE]);
    if (end === "Escape") editor()!.dispatchEvent(new window.KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
    else if (end === "Save change") press(end);
    else await write(end);
    await settled();
    assert.equal(localStorage.getItem(CHANGE), null, end);
    assert.equal(testSession.sent.length, end === "Save change" ? 1 : 0);
    for (const { id } of testSession.sent) testSession.receive({ status: "accepted", id, seq: 1 });
    assert.deepEqual(storedKeys(), [], "a saved edit stays pending until accepted");
    render(null, root);
  }
});

test("edit stays in place and stored after its message leaves the queue", async () => {
  const { testSession, script } = await openSession();
  await editMessage("as it shall be");
  testSession.play(script.addObservation("chat", "as it was", {}, { item: "m" }).addObservation("queue", "", { items: [] }));
  await settled();
  assert.deepEqual([editor()?.value, localStorage.getItem(CHANGE)], ["as it shall be", "as it shall be"]);
  press("Dismiss");
  await settled();
  assert.deepEqual([editor(), storedKeys(), testSession.sent], [null, [], []]);
});

test("edit of a closed session is rejected once its queue is complete", async () => {
  localStorage.setItem(CHANGE, "as it shall be");
  localStorage.setItem("greenroom.draft.s1.change.n", "still waits");
  const testSession = new TestSession();
  const hide = showSession(testSession.live);
  assert.equal(testSession.live.state.value.pending.length, 0);
  const script = new FrameScript().addObservation("chat", "as it was", {}, { item: "m" }).addObservation("queue", "", { items: [{ item: "n", content: "it waits" }] });
  testSession.play(script);
  testSession.receive({ status: "synced", seq: 2 });
  const missed = testSession.live.state.value.pending;
  assert.deepEqual(missed.map(({ request }) => request.action === "message" && request.args.content), ["as it shall be"]);
  assert.match(missed[0]?.rejection ?? "", /already received this message/);
  assert.deepEqual(storedKeys(), ["greenroom.draft.s1.change.n", `greenroom.unsent.s1.${missed[0]?.id}`]);
  hide();
});

test("forgetting a session removes its stored texts and no others", () => {
  const others = ["greenroom.draft.s10", "greenroom.draft.s10.files", "greenroom.layout.s1", "greenroom.task"];
  for (const key of ["greenroom.draft.s1", "greenroom.draft.s1.files", CHANGE, "greenroom.unsent.s1.a", ...others]) localStorage.setItem(key, "x");
  new TestSession().listener.ended("no_such_session");
  assert.deepEqual(storedKeys(), others);
});

/** Simulates a storage change in another tab and its event here. */
function storeInOtherTab(key: string, newValue: string | null): void {
  const oldValue = localStorage.getItem(key);
  if (newValue === null) localStorage.removeItem(key);
  else localStorage.setItem(key, newValue);
  window.dispatchEvent(new window.StorageEvent("storage", { key, oldValue, newValue }));
}

const closePage = () => window.dispatchEvent(new window.Event("pagehide"));
const DRAFT = "greenroom.draft.s1";

test("draft survives another tab on the same session", async () => {
  await renderText(<Composer live={new TestSession().live} />);
  await write("mine");
  storeInOtherTab(DRAFT, "theirs");
  assert.equal(localStorage.getItem(DRAFT), "theirs", "an immediate restore would never end");
  storeInOtherTab(DRAFT, null);
  assert.equal(localStorage.getItem(DRAFT), "mine", "the other tab sent its text");
  storeInOtherTab(DRAFT, "theirs again");
  closePage();
  assert.equal(localStorage.getItem(DRAFT), "mine", "this page reloads");
  storeInOtherTab(DRAFT, "and again");
  render(null, root);
  assert.equal(localStorage.getItem(DRAFT), "mine", "the same after a visit to another session");
  storeInOtherTab(DRAFT, null);
  closePage();
  assert.deepEqual(storedKeys(), []);
});

test("draft sent or continued in another tab is not restored", async () => {
  localStorage.setItem(DRAFT, "half a thought");
  await renderText(<Composer live={new TestSession().live} />);
  storeInOtherTab(DRAFT, "half a thought, and the rest");
  closePage();
  assert.equal(localStorage.getItem(DRAFT), "half a thought, and the rest");
  await write("a thought");
  storeInOtherTab(DRAFT, null);
  assert.deepEqual(storedKeys(), []);
  await write("mine");
  await write("");
  storeInOtherTab(DRAFT, "theirs");
  closePage();
  storeInOtherTab(DRAFT, null);
  assert.deepEqual(storedKeys(), []);
});

test("edits of queued messages and attached files survive another tab", async () => {
  await openSession();
  await editMessage("as it shall be");
  storeInOtherTab(CHANGE, "as they want it");
  storeInOtherTab(CHANGE, null);
  assert.equal(localStorage.getItem(CHANGE), "as it shall be");
  const uploads = new UploadList("s2");
  uploads.take(["uploads/plan.md"]);
  storeInOtherTab("greenroom.draft.s2.files", "[]");
  storeInOtherTab("greenroom.draft.s2.files", null);
  assert.deepEqual(new UploadList("s2").paths, ["uploads/plan.md"]);
  uploads.clear();
});

const FILES = (session: string) => `greenroom.draft.${session}.files`;
const file = (name: string, path?: string) => ({ name, size: 3, path });
const names = ({ all }: UploadList) => all.value.map(({ name, path }) => (path === undefined ? `${name} is missing` : name));

test("cleared draft leaves the other tab's draft alone", async () => {
  const testSession = new TestSession();
  testSession.play(new FrameScript());
  await renderText(<Composer live={testSession.live} />);
  await write("mine");
  localStorage.setItem("greenroom.draft.s1", "theirs");
  await write("");
  assert.equal(localStorage.getItem("greenroom.draft.s1"), "theirs");
  await write("mine");
  await write("");
  assert.equal(localStorage.getItem("greenroom.draft.s1"), null);
});

test("unfinished upload is missing after a reload in its own tab only", () => {
  const uploads = new UploadList("s4");
  uploads.take(["uploads/plan.md"]);
  uploads.all.value = [...uploads.all.value, { id: "b", name: "big.bin", size: 9, progress: 0.5 }];
  assert.equal(localStorage.getItem(FILES("s4")), JSON.stringify([{ name: "plan.md", size: null, path: "uploads/plan.md" }]));
  storeInOtherTab(FILES("s4"), JSON.stringify([file("theirs.md", "uploads/theirs.md")]));
  storeInOtherTab(FILES("s4"), null);
  assert.deepEqual(names(uploads), ["plan.md", "big.bin is missing"], "the other tab has no such file");
  assert.deepEqual(names(new UploadList("s4")), ["plan.md", "big.bin is missing"]);
  const mine = sessionStorage.getItem(FILES("s4"))!;
  sessionStorage.removeItem(FILES("s4"));
  assert.deepEqual(names(new UploadList("s4")), ["plan.md"], "another page");
  sessionStorage.setItem(FILES("s4"), mine);
  uploads.clear();
  assert.deepEqual([storedKeys(), sessionStorage.length], [[], 0]);
});

test("file removed before its upload starts is not sent", async () => {
  let sent = 0;
  class CountedRequest {
    upload = {};
    open() {}
    setRequestHeader() {}
    abort() {}
    send() {
      sent += 1;
    }
  }
  Object.assign(globalThis, { XMLHttpRequest: CountedRequest });
  const uploads = new UploadList("s3");
  const added = uploads.add([new File(["a"], "a.txt")], null);
  uploads.remove(uploads.all.value[0]!.id);
  assert.deepEqual([await added, sent], ["cancelled", 0]);
});
