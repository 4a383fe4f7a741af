// What a person asks for, from the moment they do until the server has taken it.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Attachments } from "../src/components/Attachments";
import { CommandsTab } from "../src/components/CommandsTab";
import { Composer } from "../src/components/Composer";
import { ConfirmDock } from "../src/components/ConfirmDock";
import { Outbox } from "../src/components/Outbox";
import { Queue } from "../src/components/Queue";
import { LiveSession } from "../src/state/live";
import { unsentOf } from "../src/state/unsent";
import { uploadsOf } from "../src/state/uploads";
import type { Wish } from "../src/wire/frame";
import { Script } from "./frames";
import { press, root, settled, shown, Stage, write } from "./stage";
import { answersUploads } from "./upload";

const kept = () => Object.keys(localStorage).filter((key) => key.startsWith("greenroom.unsent."));

beforeEach(() => localStorage.clear());
afterEach(() => render(null, root));

test("a message is kept until the server has taken it", () => {
  const stage = new Stage();
  stage.live.message("go on", "queue");
  const [sent] = stage.sent;
  assert.deepEqual(kept(), [`greenroom.unsent.s1.${sent?.id}`]);
  stage.say({ status: "accepted", id: sent?.id, seq: 1 });
  assert.deepEqual(kept(), []);
});

test("one that was refused is kept until it is dropped, and other wishes are not", () => {
  const stage = new Stage();
  stage.live.message("go on", "queue");
  stage.live.pause();
  const id = stage.sent[0]!.id!;
  stage.say({ error: { code: "busy", message: "no" }, id });
  assert.equal(kept().length, 1);
  assert.equal(JSON.parse(localStorage.getItem(kept()[0]!) ?? "").refusal, "no");
  stage.live.drop(id);
  assert.deepEqual(kept(), []);
});

test("who presses twice means it once, until that has been answered", () => {
  const stage = new Stage();
  const actions = () => stage.sent.map(({ action }) => action);
  stage.live.pause();
  stage.live.pause();
  stage.live.removeFromQueue("a");
  stage.live.removeFromQueue("a");
  stage.live.removeFromQueue("b");
  assert.deepEqual(actions(), ["pause", "edit_queue", "edit_queue"]);
  stage.say({ status: "accepted", id: stage.sent[0]!.id!, seq: 0 });
  stage.live.pause();
  assert.deepEqual(actions(), ["pause", "edit_queue", "edit_queue", "pause"]);
});

test("a stop that could not be sent stops nothing that began after it", () => {
  const hello = { status: "hello", session: null, last_seq: 1, state: "running" };
  const after = (script: Script) => {
    const stage = new Stage();
    stage.play(new Script().state("running"));
    stage.isConnected = false;
    stage.live.interrupt();
    stage.isConnected = true;
    stage.listener.opened();
    stage.say(hello, ...script.frames.slice(1), { status: "synced", seq: script.frames.length });
    return stage.sent.map(({ action }) => action);
  };
  assert.deepEqual(after(new Script().state("running")), ["interrupt"]);
  assert.deepEqual(after(new Script().state("running").state("idle").state("running")), []);
});

test("a server that has the session again in the same connection is told nothing twice", () => {
  const stage = new Stage();
  stage.listener.opened();
  const back = [{ status: "hello", session: null, last_seq: 0, state: "idle" }, { status: "synced", seq: 0 }];
  stage.say(...back);
  stage.live.message("go on", "queue");
  stage.live.interrupt();
  stage.say({ error: { code: "journal_unavailable", message: "the disk is full" } });
  assert.equal(stage.live.state.value.trouble, "the disk is full");
  stage.say(...back);
  assert.equal(stage.live.state.value.trouble, null);
  assert.deepEqual(stage.sent.map(({ action }) => action), ["message", "interrupt"]);
  stage.listener.opened();
  stage.say(...back);
  assert.deepEqual(stage.sent.map(({ action }) => action), ["message", "interrupt", "message", "interrupt"]);
});

test("before `hello` nothing but a stop goes out: what waits from before comes first", () => {
  const stage = new Stage();
  stage.isConnected = false;
  stage.live.message("first", "queue");
  stage.isConnected = true;
  stage.listener.opened();
  stage.live.message("second", "queue");
  stage.live.interrupt();
  assert.deepEqual(stage.sent.map(({ action }) => action), ["interrupt"]);
  stage.say({ status: "hello", session: null, last_seq: 0, state: "running" });
  stage.live.message("third", "queue");
  const said = stage.sent.flatMap((wish) => (wish.action === "message" ? [wish.args.content] : []));
  assert.deepEqual(said, ["first", "second", "third"]);
  assert.equal(new Set(stage.sent.map(({ id }) => id)).size, 4, "each of them once");
});

test("where the browser has no room nothing breaks", (context) => {
  context.mock.method(Object.getPrototypeOf(localStorage) as Storage, "setItem", () => {
    throw new Error("the quota is exceeded");
  });
  const stage = new Stage();
  stage.live.message("go on", "queue");
  assert.equal(stage.sent.length, 1);
  assert.deepEqual(kept(), []);
});

test("what was not taken is there again when the session opens, under the same id", async () => {
  const sockets: { sent: string[]; onmessage?: (message: { data: string }) => void }[] = [];
  class FakeSocket {
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
  Object.assign(globalThis, { WebSocket: FakeSocket, fetch: async () => new Response('{"items":[]}') });
  const before = new Stage();
  before.isConnected = false;
  before.live.message("first", "queue");
  before.live.message("second", "steer");
  const after = new LiveSession("s1");
  assert.deepEqual(after.state.value.sending, before.live.state.value.sending);
  await settled();
  const socket = sockets[0]!;
  socket.onmessage?.({ data: JSON.stringify({ status: "hello", session: null, last_seq: 0, state: "idle" }) });
  socket.onmessage?.({ data: JSON.stringify({ status: "synced", seq: 0 }) });
  const sent = socket.sent.map((text) => JSON.parse(text) as Wish & { id: string });
  assert.deepEqual(sent.map(({ id }) => id), before.live.state.value.sending.map(({ id }) => id));
  assert.equal(kept().length, 2);
  after.close();
  before.listener.refused("no_such_session");
  assert.deepEqual(kept(), [], "nobody will ever take them");
});

test("all that a person typed is kept until it is taken, and what they only pressed is not", () => {
  const before = new Stage();
  before.isConnected = false;
  before.live.editQueue("m", "as it shall be");
  before.live.run("make");
  before.live.answer("q", "deny", "too dangerous");
  before.live.answer("r", "allow");
  before.live.removeFromQueue("n");
  before.live.setModel("demo");
  before.live.interrupt();
  const typed = before.live.state.value.sending.slice(0, 3);
  assert.deepEqual(unsentOf("s1"), typed);
  before.isConnected = true;
  before.say({ status: "hello", session: null, last_seq: 0, state: "idle" });
  assert.deepEqual(before.sent.slice(0, 3).map(({ id }) => id), typed.map(({ id }) => id));
  for (const { id } of typed) before.say({ status: "accepted", id, seq: 1 });
  assert.deepEqual(kept(), []);
});

test("a change that was saved without a connection outlives the page", async () => {
  const stage = new Stage();
  stage.play(new Script().see("queue", "", { items: [{ item: "m", content: "as it was" }] }));
  stage.isConnected = false;
  await shown(<Queue live={stage.live} />);
  press("Edit");
  await settled();
  await write("as it shall be");
  press("Keep the change");
  await settled();
  assert.deepEqual(unsentOf("s1").map(({ wish }) => "args" in wish && wish.args), [{ item: "m", content: "as it shall be" }]);
});

test("what is too long is not sent, and can be attached in its place", async () => {
  const stage = new Stage();
  stage.live.message("é".repeat(600_000), "queue", ["uploads/plan.md"]);
  assert.deepEqual(stage.sent, []);
  const text = await shown(<Outbox live={stage.live} />);
  assert.match(text, /This is 1\.1 MiB long, and 1 MiB can be sent at once\. Attach it as a file\./);
  assert.doesNotMatch(text, /Send again/);
  let status = 413;
  answersUploads(() => status);
  const uploads = uploadsOf("s1");
  press("Attach as a file");
  await settled();
  assert.deepEqual([uploads.all.value.length, stage.live.state.value.sending.length], [1, 1], "its words are nowhere else yet");
  uploads.clear();
  status = 201;
  press("Attach as a file");
  await settled();
  assert.deepEqual(uploads.all.value.map(({ name, size }) => [name, size]), [["message.txt", 1_200_000], ["plan.md", null]]);
  assert.deepEqual(stage.live.state.value.sending, []);
});

test("without a connection one interrupt is enough", (context) => {
  context.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  const stage = new Stage();
  stage.isConnected = false;
  stage.live.interrupt();
  context.mock.timers.tick(5000);
  stage.live.interrupt();
  assert.equal(stage.live.state.value.sending.length, 1);
  stage.say({ status: "synced", seq: 0 });
  stage.live.interrupt();
  assert.equal(stage.live.state.value.sending.length, 2, "the server goes to harder means");
});

test("what came of one stop says nothing about the next", (context) => {
  context.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  const stage = new Stage();
  stage.play(new Script().state("running"));
  stage.say({ status: "synced", seq: 1 });
  stage.live.interrupt();
  stage.say({ error: { code: "unavailable", message: "not now" }, id: stage.sent[0]!.id });
  assert.equal(stage.live.stopping.value, 0, "it was refused");
  stage.live.interrupt();
  stage.say({ delta: "text", item: "t", offset: 0, content: "still at it" });
  assert.equal(stage.live.stopping.value, 1_000_000);
  stage.live.interrupt();
  assert.equal(stage.sent.length, 2, "a double click is no second question");
  assert.deepEqual(stage.live.state.value.sending.map(({ refusal }) => refusal), ["not now", undefined]);
});

test("a stop that is taken back before it was sent is no stop any more", () => {
  const hello = (state: string) => ({ status: "hello", session: null, last_seq: 1, state });
  /** What is shown of a stop that was pressed without a connection, once it is known what came meanwhile. */
  const stopping = (before: Script, meanwhile: (script: Script) => Script) => {
    const stage = new Stage();
    stage.play(before);
    stage.isConnected = false;
    stage.live.interrupt();
    assert.notEqual(stage.live.stopping.value, 0);
    stage.isConnected = true;
    stage.listener.opened();
    const first = before.frames.length;
    const script = meanwhile(before);
    stage.say(hello(stage.live.state.value.agentState ?? "idle"), ...script.frames.slice(first), { status: "synced", seq: script.frames.length });
    return { isShown: stage.live.stopping.value !== 0, sent: stage.sent.length };
  };
  const over = { isShown: false, sent: 0 };
  const asks = () => new Script().state("running").see("confirm", "", { request: "q", action: "ls", risk: "low", options: ["allow"] });
  const paused = () => new Script().state("running").state("paused");
  assert.deepEqual(stopping(asks().state("awaiting_confirmation"), (script) => script.state("running").state("idle")), over);
  assert.deepEqual(stopping(paused(), (script) => script.state("running").state("idle")), over);
  assert.deepEqual(stopping(new Script().state("running"), (script) => script.state("idle").state("running")), over);
  assert.deepEqual(stopping(paused(), (script) => script.state("running")), { isShown: true, sent: 1 });
});

test("a stop that was taken is shown until it is known what came of it", () => {
  const stage = new Stage();
  const script = new Script().state("running").see("confirm", "", { request: "q", action: "ls", risk: "low", options: ["allow"] });
  stage.play(script.state("awaiting_confirmation"));
  stage.say({ status: "synced", seq: 3 });
  stage.live.interrupt();
  const { id } = stage.sent[0]!;
  stage.say({ status: "accepted", id, seq: 4 });
  stage.play(script.act("user", "interrupt", {}));
  assert.deepEqual([stage.live.state.value.sending, stage.live.stopping.value === 0], [[], false]);
  stage.play(script.see("interrupted", "", { what: "the turn", stopped_ms: 12, rung: "asked", partial: false }));
  assert.equal(stage.live.stopping.value, 0);
});

test("who stops what has ended by itself is not told so", () => {
  const stage = new Stage();
  stage.play(new Script().state("running"));
  stage.live.interrupt();
  stage.say({ error: { code: "nothing_to_interrupt", message: "nothing is running" }, id: stage.sent[0]!.id });
  assert.deepEqual([stage.live.stopping.value, stage.live.state.value.sending], [0, []]);
});

test("an answer on its way cannot be given twice, unless it is refused", async () => {
  const stage = new Stage();
  stage.play(new Script().see("confirm", "", { request: "q", action: "ls", risk: "low", options: ["allow", "deny"] }));
  const disabled = () => [...root.querySelectorAll<HTMLButtonElement>("button, input")].map((one) => one.disabled);
  await shown(<ConfirmDock live={stage.live} />);
  assert.deepEqual(disabled(), [false, false, false]);
  press("Deny");
  await settled();
  assert.deepEqual(disabled(), [true, true, true]);
  assert.equal(root.querySelector("[role=status]")?.textContent, "Your answer is on its way…");
  stage.say({ error: { code: "busy", message: "no" }, id: stage.sent[0]!.id });
  await settled();
  assert.deepEqual(disabled(), [false, false, false]);
  assert.equal(root.querySelector("[role=status]")?.textContent, "");
});

test("a command on its way stands below the others", async () => {
  const stage = new Stage();
  stage.play(new Script().act("user", "run", { command: "ls" }, { item: "r" }));
  stage.live.run("make");
  assert.match(await shown(<CommandsTab live={stage.live} />), /ls.*make\s*sending…/);
  stage.say({ error: { code: "busy", message: "no" }, id: stage.sent[0]!.id });
  assert.doesNotMatch(await shown(<CommandsTab live={stage.live} />), /make/);
});


test("a change that was refused can be sent as a new message", async () => {
  const stage = new Stage();
  stage.live.editQueue("m", "as it shall be");
  stage.say({ error: { code: "not_found", message: "it is not in the queue" }, id: stage.sent[0]!.id });
  assert.match(await shown(<Outbox live={stage.live} />), /it is not in the queueas it shall be/);
  press("Send again");
  assert.deepEqual(stage.sent.map(({ action }) => action), ["edit_queue", "message"]);
});

test("what was refused is sent again under its own id, and a change as long as its message waits", async () => {
  const stage = new Stage();
  stage.play(new Script().see("queue", "", { items: [{ item: "m", content: "as it was" }] }));
  for (const [ask, name] of [
    [() => stage.live.message("go on", "steer", ["uploads/plan.md"]), "Send again"],
    [() => stage.live.run("make all"), "Try again"],
    [() => stage.live.editQueue("m", "as it shall be"), "Send again"],
  ] as const) {
    ask();
    const [first] = stage.sent.splice(0);
    stage.say({ error: { code: "unanswered", message: "whether it was done, the journal tells" }, id: first!.id });
    await shown(<Outbox live={stage.live} />);
    press(name);
    assert.deepEqual(stage.sent.splice(0), [first]);
    stage.say({ status: "accepted", id: first!.id, seq: 1 });
    assert.deepEqual(stage.live.state.value.sending, []);
  }
});

test("why somebody denied it is given back with the refusal", async () => {
  const stage = new Stage();
  stage.live.answer("q", "deny", "too dangerous");
  stage.say({ error: { code: "no_request", message: "nobody asks that any more" }, id: stage.sent[0]!.id });
  assert.equal(await shown(<Outbox live={stage.live} />), "nobody asks that any moretoo dangerousDismiss");
});

test("a command that was refused is given back", async () => {
  const stage = new Stage();
  stage.live.run("make all");
  stage.say({ error: { code: "busy", message: "not now" }, id: stage.sent[0]!.id });
  assert.match(await shown(<Outbox live={stage.live} />), /not nowmake all/);
  press("Try again");
  assert.deepEqual(stage.sent.map((wish) => wish.action === "run" && wish.args.command), ["make all", "make all"]);
  assert.equal(stage.live.state.value.sending.length, 1);
});

test("a file that could not be uploaded holds the message back", async () => {
  const stage = new Stage();
  const uploads = uploadsOf("s1");
  uploads.clear();
  uploads.all.value = [{ id: "u", name: "big.bin", size: 9, progress: 0, problem: "it is too large" }];
  await shown(<Composer live={stage.live} />);
  await write("look at it");
  const send = async () => {
    root.querySelector("textarea")!.dispatchEvent(new window.KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    await settled();
  };
  await send();
  assert.deepEqual(stage.sent, []);
  assert.equal(root.querySelector(".send")?.getAttribute("aria-label"), "Not all files are there");
  assert.match(await shown(<Attachments uploads={uploads} />), /too large.*The message waits/);
  uploads.remove("u");
  await shown(<Composer live={stage.live} />);
  await send();
  assert.equal(stage.sent.length, 1);
});
