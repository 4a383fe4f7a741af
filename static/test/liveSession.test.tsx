// Requests of the user until the server accepts them.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Attachments } from "../src/components/Attachments";
import { CommandsTab } from "../src/components/CommandsTab";
import { Composer } from "../src/components/Composer";
import { ApprovalDock } from "../src/approvals/ApprovalDock";
import { RejectedRequests } from "../src/components/RejectedRequests";
import { Queue } from "../src/components/Queue";
import { LiveSession } from "../src/state/liveSession";
import { storedRequests } from "../src/state/pendingStorage";
import { uploadsOf } from "../src/state/uploads";
import type { ClientRequest } from "../src/wire/frame";
import { FrameScript } from "./frameScript";
import { press, root, settled, renderText, TestSession, write, waitUntil } from "./testSession";
import { answerUploads } from "./fakeUploads";

const storedKeys = () => Object.keys(localStorage).filter((key) => key.startsWith("greenroom.unsent."));

beforeEach(() => localStorage.clear());
afterEach(() => render(null, root));

test("message is stored until accepted", () => {
  const testSession = new TestSession();
  testSession.live.message("go on", "queue");
  const [sent] = testSession.sent;
  assert.deepEqual(storedKeys(), [`greenroom.unsent.s1.${sent?.id}`]);
  testSession.receive({ status: "accepted", id: sent?.id, seq: 1 });
  assert.deepEqual(storedKeys(), []);
});

test("rejected message is stored until discarded, other requests are not", () => {
  const testSession = new TestSession();
  testSession.live.message("go on", "queue");
  testSession.live.pause();
  const id = testSession.sent[0]!.id!;
  testSession.receive({ error: { code: "busy", message: "no" }, id });
  assert.equal(storedKeys().length, 1);
  assert.equal(JSON.parse(localStorage.getItem(storedKeys()[0]!) ?? "")["refusal"], "no");
  testSession.live.dropRequest(id);
  assert.deepEqual(storedKeys(), []);
});

test("double press sends one request until the reply", () => {
  const testSession = new TestSession();
  const actions = () => testSession.sent.map(({ action }) => action);
  testSession.live.pause();
  testSession.live.pause();
  testSession.live.removeFromQueue("a");
  testSession.live.removeFromQueue("a");
  testSession.live.removeFromQueue("b");
  assert.deepEqual(actions(), ["pause", "edit_queue", "edit_queue"]);
  testSession.receive({ status: "accepted", id: testSession.sent[0]!.id!, seq: 0 });
  testSession.live.pause();
  assert.deepEqual(actions(), ["pause", "edit_queue", "edit_queue", "pause"]);
});

test("unsent interrupt does not stop a later turn", () => {
  const hello = { status: "hello", session: null, last_seq: 1, state: "running" };
  const after = (script: FrameScript) => {
    const testSession = new TestSession();
    testSession.play(new FrameScript().state("running"));
    testSession.isConnected = false;
    testSession.live.interrupt();
    testSession.isConnected = true;
    testSession.listener.opened();
    testSession.receive(hello, ...script.frames.slice(1), { status: "synced", seq: script.frames.length });
    return testSession.sent.map(({ action }) => action);
  };
  assert.deepEqual(after(new FrameScript().state("running")), ["interrupt"]);
  assert.deepEqual(after(new FrameScript().state("running").state("idle").state("running")), []);
});

test("second hello on the same connection resends nothing", () => {
  const testSession = new TestSession();
  testSession.listener.opened();
  const back = [{ status: "hello", session: null, last_seq: 0, state: "idle" }, { status: "synced", seq: 0 }];
  testSession.receive(...back);
  testSession.live.message("go on", "queue");
  testSession.live.interrupt();
  testSession.receive({ error: { code: "journal_unavailable", message: "the disk is full" } });
  assert.equal(testSession.live.state.value.problem, "the disk is full");
  testSession.receive(...back);
  assert.equal(testSession.live.state.value.problem, null);
  assert.deepEqual(testSession.sent.map(({ action }) => action), ["message", "interrupt"]);
  testSession.listener.opened();
  testSession.receive(...back);
  assert.deepEqual(testSession.sent.map(({ action }) => action), ["message", "interrupt", "message", "interrupt"]);
});

test("only interrupts are sent before hello, others keep their order", () => {
  const testSession = new TestSession();
  testSession.isConnected = false;
  testSession.live.message("first", "queue");
  testSession.isConnected = true;
  testSession.listener.opened();
  testSession.live.message("second", "queue");
  testSession.live.interrupt();
  assert.deepEqual(testSession.sent.map(({ action }) => action), ["interrupt"]);
  testSession.receive({ status: "hello", session: null, last_seq: 0, state: "running" });
  testSession.live.message("third", "queue");
  const said = testSession.sent.flatMap((request) => (request.action === "message" ? [request.args.content] : []));
  assert.deepEqual(said, ["first", "second", "third"]);
  assert.equal(new Set(testSession.sent.map(({ id }) => id)).size, 4, "each message is sent once");
});

test("full browser storage breaks nothing", (context) => {
  context.mock.method(Object.getPrototypeOf(localStorage) as Storage, "setItem", () => {
    throw new Error("the quota is exceeded");
  });
  const testSession = new TestSession();
  testSession.live.message("go on", "queue");
  assert.equal(testSession.sent.length, 1);
  assert.deepEqual(storedKeys(), []);
});

test("unaccepted requests return under their ids when the session opens", async () => {
  const sockets: { sent: string[]; onmessage?: (message: { data: string }) => void }[] = [];
  class SilentSocket {
    static readonly OPEN = 1;
    readyState = 1;
    sent: string[] = [];
    constructor() {
      sockets.push(this);
    }
    send(text: string) {
      this.sent.push(text);
    }
    close() {}
  }
  Object.assign(globalThis, { WebSocket: SilentSocket, fetch: async () => new Response('{"items":[]}') });
  const before = new TestSession();
  before.isConnected = false;
  before.live.message("first", "queue");
  before.live.message("second", "steer");
  const after = new LiveSession("s1");
  assert.deepEqual(after.state.value.pending, before.live.state.value.pending);
  await settled();
  const socket = sockets[0]!;
  socket.onmessage?.({ data: JSON.stringify({ status: "hello", session: null, last_seq: 0, state: "idle" }) });
  socket.onmessage?.({ data: JSON.stringify({ status: "synced", seq: 0 }) });
  const sent = socket.sent.map((text) => JSON.parse(text) as ClientRequest & { id: string });
  assert.deepEqual(sent.map(({ id }) => id), before.live.state.value.pending.map(({ id }) => id));
  assert.equal(storedKeys().length, 2);
  after.close();
  before.listener.ended("no_such_session");
  assert.deepEqual(storedKeys(), [], "a deleted session accepts no requests");
});

test("typed requests are stored until accepted, pressed buttons are not", () => {
  const before = new TestSession();
  before.isConnected = false;
  before.live.editQueue("m", "as it shall be");
  before.live.run("make");
  before.live.answerApproval({ request: "q", decision: "deny", reason: "too dangerous" });
  before.live.answerApproval({ request: "r", decision: "allow" });
  before.live.removeFromQueue("n");
  before.live.setModel("demo");
  before.live.interrupt();
  const typed = before.live.state.value.pending.slice(0, 3);
  assert.deepEqual(storedRequests("s1"), typed);
  before.isConnected = true;
  before.receive({ status: "hello", session: null, last_seq: 0, state: "idle" });
  assert.deepEqual(before.sent.slice(0, 3).map(({ id }) => id), typed.map(({ id }) => id));
  for (const { id } of typed) before.receive({ status: "accepted", id, seq: 1 });
  assert.deepEqual(storedKeys(), []);
});

test("saved edit without a connection survives a reload", async () => {
  const testSession = new TestSession();
  testSession.play(new FrameScript().addObservation("queue", "", { items: [{ item: "m", content: "as it was" }] }));
  testSession.isConnected = false;
  await renderText(<Queue live={testSession.live} />);
  press("Edit");
  await settled();
  await write("as it shall be");
  press("Save change");
  await settled();
  assert.deepEqual(storedRequests("s1").map(({ request }) => "args" in request && request.args), [{ item: "m", content: "as it shall be" }]);
});

test("overlong message is not sent and can be attached as a file", async () => {
  const testSession = new TestSession();
  testSession.live.message("é".repeat(600_000), "queue", ["uploads/plan.md"]);
  assert.deepEqual(testSession.sent, []);
  const text = await renderText(<RejectedRequests live={testSession.live} />);
  assert.match(text, /1\.1 MiB exceeds the limit of 1 MiB\. Attach it as a file\./);
  assert.doesNotMatch(text, /Send again/);
  let status = 413;
  answerUploads(() => status);
  const uploads = uploadsOf("s1");
  press("Attach as a file");
  await settled();
  assert.deepEqual([uploads.all.value.length, testSession.live.state.value.pending.length], [1, 1], "the text exists nowhere else yet");
  uploads.clear();
  status = 201;
  press("Attach as a file");
  await settled();
  assert.deepEqual(uploads.all.value.map(({ name, size }) => [name, size]), [["message.txt", 1_200_000], ["plan.md", null]]);
  assert.deepEqual(testSession.live.state.value.pending, []);
});

test("one interrupt suffices without a connection", (context) => {
  context.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  const testSession = new TestSession();
  testSession.isConnected = false;
  testSession.live.interrupt();
  context.mock.timers.tick(5000);
  testSession.live.interrupt();
  assert.equal(testSession.live.state.value.pending.length, 1);
  testSession.receive({ status: "synced", seq: 0 });
  testSession.live.interrupt();
  assert.equal(testSession.live.state.value.pending.length, 2, "the second interrupt escalates");
});

test("outcome of an earlier interrupt does not end the current one", (context) => {
  context.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  const testSession = new TestSession();
  testSession.play(new FrameScript().state("running"));
  testSession.receive({ status: "synced", seq: 1 });
  testSession.live.interrupt();
  testSession.receive({ error: { code: "unavailable", message: "not now" }, id: testSession.sent[0]!.id });
  assert.equal(testSession.live.interrupting.value, 0, "the interrupt was rejected");
  testSession.live.interrupt();
  testSession.receive({ delta: "text", item: "t", offset: 0, content: "still at it" });
  assert.equal(testSession.live.interrupting.value, 1_000_000);
  testSession.live.interrupt();
  assert.equal(testSession.sent.length, 2, "a double click sends one interrupt");
  assert.deepEqual(testSession.live.state.value.pending.map(({ rejection }) => rejection), ["not now", undefined]);
});

test("withdrawn unsent interrupt is no longer shown", () => {
  const hello = (state: string) => ({ status: "hello", session: null, last_seq: 1, state });
  /** Returns the shown state of an interrupt pressed without a connection, after the reconnect. */
  const stopping = (before: FrameScript, meanwhile: (script: FrameScript) => FrameScript) => {
    const testSession = new TestSession();
    testSession.play(before);
    testSession.isConnected = false;
    testSession.live.interrupt();
    assert.notEqual(testSession.live.interrupting.value, 0);
    testSession.isConnected = true;
    testSession.listener.opened();
    const first = before.frames.length;
    const script = meanwhile(before);
    testSession.receive(hello(testSession.live.state.value.agentState ?? "idle"), ...script.frames.slice(first), { status: "synced", seq: script.frames.length });
    return { isShown: testSession.live.interrupting.value !== 0, sent: testSession.sent.length };
  };
  const over = { isShown: false, sent: 0 };
  const asks = () => new FrameScript().state("running").addObservation("confirm", "", { request: "q", action: "ls", risk: { level: "low" }, options: ["allow"] });
  const paused = () => new FrameScript().state("running").state("paused");
  assert.deepEqual(stopping(asks().state("awaiting_confirmation"), (script) => script.state("running").state("idle")), over);
  assert.deepEqual(stopping(paused(), (script) => script.state("running").state("idle")), over);
  assert.deepEqual(stopping(new FrameScript().state("running"), (script) => script.state("idle").state("running")), over);
  assert.deepEqual(stopping(paused(), (script) => script.state("running")), { isShown: true, sent: 1 });
});

test("accepted interrupt is shown until its outcome arrives", () => {
  const testSession = new TestSession();
  const script = new FrameScript().state("running").addObservation("confirm", "", { request: "q", action: "ls", risk: { level: "low" }, options: ["allow"] });
  testSession.play(script.state("awaiting_confirmation"));
  testSession.receive({ status: "synced", seq: 3 });
  testSession.live.interrupt();
  const { id } = testSession.sent[0]!;
  testSession.receive({ status: "accepted", id, seq: 4 });
  testSession.play(script.addAction("user", "interrupt", {}));
  assert.deepEqual([testSession.live.state.value.pending, testSession.live.interrupting.value === 0], [[], false]);
  testSession.play(script.addObservation("interrupted", "", { what: "the turn", stopped_ms: 12, rung: "cancel", partial: false }));
  assert.equal(testSession.live.interrupting.value, 0);
});

test("interrupt of an already ended turn shows no error", () => {
  const testSession = new TestSession();
  testSession.play(new FrameScript().state("running"));
  testSession.live.interrupt();
  testSession.receive({ error: { code: "nothing_to_interrupt", message: "nothing is running" }, id: testSession.sent[0]!.id });
  assert.deepEqual([testSession.live.interrupting.value, testSession.live.state.value.pending], [0, []]);
});

test("pending answer blocks a second one unless rejected", async () => {
  const testSession = new TestSession();
  testSession.play(new FrameScript().addObservation("confirm", "", { request: "q", action: "ls", risk: { level: "low" }, options: ["allow", "deny"] }));
  const disabled = () => [...root.querySelectorAll<HTMLButtonElement>("button, input")].map((one) => one.disabled);
  await renderText(<ApprovalDock live={testSession.live} />);
  assert.deepEqual(disabled(), [false, false, false]);
  await waitUntil(() => !root.querySelector("[inert]"));
  press("Deny");
  await settled();
  assert.deepEqual(disabled(), [true, true, true]);
  assert.equal(root.querySelector("[role=status]")?.textContent, "Sending your answer…");
  testSession.receive({ error: { code: "busy", message: "no" }, id: testSession.sent[0]!.id });
  await settled();
  assert.deepEqual(disabled(), [false, false, false]);
  assert.equal(root.querySelector("[role=status]")?.textContent, "");
});

test("pending command is listed below the others", async () => {
  const testSession = new TestSession();
  testSession.play(new FrameScript().addAction("user", "run", { command: "ls" }, { item: "r" }));
  testSession.live.run("make");
  assert.match(await renderText(<CommandsTab live={testSession.live} />), /ls.*make\s*Sending…/);
  testSession.receive({ error: { code: "busy", message: "no" }, id: testSession.sent[0]!.id });
  assert.doesNotMatch(await renderText(<CommandsTab live={testSession.live} />), /make/);
});


test("rejected edit can be sent as a new message", async () => {
  const testSession = new TestSession();
  testSession.live.editQueue("m", "as it shall be");
  testSession.receive({ error: { code: "not_found", message: "it is not in the queue" }, id: testSession.sent[0]!.id });
  assert.match(await renderText(<RejectedRequests live={testSession.live} />), /it is not in the queueas it shall be/);
  press("Send again");
  assert.deepEqual(testSession.sent.map(({ action }) => action), ["edit_queue", "message"]);
});

test("rejected request is resent under its id, an edit only while its message is queued", async () => {
  const testSession = new TestSession();
  testSession.play(new FrameScript().addObservation("queue", "", { items: [{ item: "m", content: "as it was" }] }));
  for (const [ask, name] of [
    [() => testSession.live.message("go on", "steer", ["uploads/plan.md"]), "Send again"],
    [() => testSession.live.run("make all"), "Try again"],
    [() => testSession.live.editQueue("m", "as it shall be"), "Send again"],
  ] as const) {
    ask();
    const [first] = testSession.sent.splice(0);
    testSession.receive({ error: { code: "unanswered", message: "whether it was done, the journal tells" }, id: first!.id });
    await renderText(<RejectedRequests live={testSession.live} />);
    press(name);
    assert.deepEqual(testSession.sent.splice(0), [first]);
    testSession.receive({ status: "accepted", id: first!.id, seq: 1 });
    assert.deepEqual(testSession.live.state.value.pending, []);
  }
});

test("rejected denial returns its reason", async () => {
  const testSession = new TestSession();
  testSession.live.answerApproval({ request: "q", decision: "deny", reason: "too dangerous" });
  testSession.receive({ error: { code: "no_request", message: "nobody asks that any more" }, id: testSession.sent[0]!.id });
  assert.equal(await renderText(<RejectedRequests live={testSession.live} />), "nobody asks that any moretoo dangerousDismiss");
});

test("rejected command returns its text", async () => {
  const testSession = new TestSession();
  testSession.live.run("make all");
  testSession.receive({ error: { code: "busy", message: "not now" }, id: testSession.sent[0]!.id });
  assert.match(await renderText(<RejectedRequests live={testSession.live} />), /not nowmake all/);
  press("Try again");
  assert.deepEqual(testSession.sent.map((request) => request.action === "run" && request.args.command), ["make all", "make all"]);
  assert.equal(testSession.live.state.value.pending.length, 1);
});

test("failed upload holds the message back", async () => {
  const testSession = new TestSession();
  const uploads = uploadsOf("s1");
  uploads.clear();
  uploads.all.value = [{ id: "u", name: "big.bin", size: 9, progress: 0, problem: "it is too large" }];
  await renderText(<Composer live={testSession.live} />);
  await write("look at it");
  const send = async () => {
    root.querySelector("textarea")!.dispatchEvent(new window.KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    await settled();
  };
  await send();
  assert.deepEqual(testSession.sent, []);
  assert.equal(root.querySelector(".send")?.getAttribute("aria-label"), "Some files are not uploaded");
  assert.match(await renderText(<Attachments uploads={uploads} session="s1" model={null} />), /too large.*Remove failed files/);
  uploads.remove("u");
  await renderText(<Composer live={testSession.live} />);
  await send();
  assert.equal(testSession.sent.length, 1);
});
