// Fork of a session from a message and from a turn: request, failures, and the links back.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { RowView } from "../src/components/RowView";
import { SessionDialog } from "../src/components/SessionDialog";
import { SessionHeader } from "../src/components/SessionHeader";
import { loadLazy } from "../src/loadLazy";
import { navigate } from "../src/route";
import { showSession } from "../src/state/currentSession";
import { sessionDialog } from "../src/state/sessionDialog";
import type { Session } from "../src/wire/frame";
import { FrameScript } from "./frameScript";
import { press, renderText, root, settled, TestSession, write } from "./testSession";

Object.assign(window.HTMLDialogElement.prototype, { showModal() {}, close() {} });

const parent = { id: "s1", title: "The parent", state: "idle", last_seq: 9, created_at: "", updated_at: "" } as Session;

let sent: { key: string; body: unknown }[] = [];
/** Answers to forks, in order. `null`: no answer. */
let answers: (object | null)[] = [];
let offered = { offered: true, reason: null as string | null };

globalThis.fetch = (async (address: string, { headers, body }: RequestInit) => {
  const { pathname } = new URL(address, "http://127.0.0.1");
  const json = (value: unknown, status = 200) => new Response(JSON.stringify(value), { status });
  if (pathname === "/api/sessions/s1/fork") {
    sent.push({ key: (headers as Record<string, string>)["Idempotency-Key"]!, body: JSON.parse(String(body)) });
    const answer = answers.shift() ?? null;
    if (answer === null) throw new Error("the network is gone");
    return json(answer, "error" in answer ? 409 : 201);
  }
  if (pathname.endsWith("/checkpoints")) return json({ ...offered, items: [], damage: null });
  if (pathname === "/api/sessions/listed") return json({ ...parent, id: "listed" });
  if (pathname.startsWith("/api/sessions/")) return json({ error: { code: "not_found", message: "no session" } }, 404);
  return json({ items: [], next_cursor: null, total: 0 });
}) as typeof fetch;

const made = { ...parent, id: "s2", parent: { id: "s1", seq: 1 } };
const noCheckpoint = { error: { code: "no_checkpoint", message: "no checkpoint is kept for event 1" } };

const testSession = new TestSession();
const script = new FrameScript().addAction("user", "message", { content: "old text" });
script.addObservation("chat", "old text", { turn: "turn-1" }, { cause: 1 }).state("running").state("idle");
testSession.receive({ status: "hello", session: parent, last_seq: 4, state: "idle" });
testSession.play(script);
let hide = () => {};

beforeEach(async () => {
  await loadLazy();
  [sent, answers, offered] = [[], [], { offered: true, reason: null }];
  navigate("/sessions/s1");
  hide = showSession(testSession.live);
});
afterEach(() => {
  sessionDialog.value = null;
  render(null, root);
  hide();
});

/** Draws the row of a kind, and the dialog that it opens. */
async function open(kind: "user" | "turn", action: string): Promise<void> {
  await renderText(<RowView row={testSession.live.state.peek().rows.find((row) => row.kind === kind)!} session="s1" />);
  press(action);
  await renderText(<SessionDialog {...sessionDialog.value!} />);
}
const text = () => root.querySelector("textarea")!.value;
const button = (name: string) => [...root.querySelectorAll("button")].find((one) => one.textContent === name);

test("edited message is sent in a fork from before it", async () => {
  answers = [made];
  await open("user", "Edit and resend");
  assert.equal(text(), "old text");
  await write("  ");
  assert.equal(button("Send in a fork")!.disabled, true);
  root.querySelector("textarea")!.dispatchEvent(new window.KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  await settled();
  assert.deepEqual(sent, [], "an empty text is not sent by a key either");
  await write("new text ");
  root.querySelector("textarea")!.dispatchEvent(new window.KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  await settled();
  assert.deepEqual(sent.map(({ body }) => body), [{ at: 1, message: "new text" }]);
  assert.equal(location.pathname, "/sessions/s2");
  assert.equal(sessionDialog.peek(), null);
});

test("closed editor keeps its text until it is sent", async () => {
  await open("user", "Edit and resend");
  await write("half a thought");
  press("Cancel");
  render(null, root);
  await open("user", "Edit and resend");
  assert.equal(text(), "half a thought");
  answers = [made];
  press("Send in a fork");
  await settled();
  await open("user", "Edit and resend");
  assert.equal(text(), "old text");
});

test("missing checkpoint offers other files, and a lost answer makes no second session", async () => {
  answers = [noCheckpoint, null, made];
  await open("turn", "Fork from here");
  assert.equal(root.querySelector("textarea"), null);
  assert.equal(button("Fork without files"), undefined);
  press("Fork");
  await settled();
  assert.match(root.querySelector("[role=alert]")!.textContent!, /no checkpoint is kept for event 1/);
  press("With the files of now");
  await settled();
  assert.match(root.querySelector("[role=alert]")!.textContent!, /no reply from the server/);
  assert.equal(location.pathname, "/sessions/s1", "the user stays");
  press("With the files of now");
  await settled();
  assert.deepEqual(sent.map(({ body }) => body), [{ at: 4 }, { at: 4, files: "now" }, { at: 4, files: "now" }]);
  assert.notEqual(sent[0]!.key, sent[1]!.key);
  assert.equal(sent[1]!.key, sent[2]!.key);
  assert.equal(location.pathname, "/sessions/s2");
});

test("dialog says that a shared workspace has no files to copy", async () => {
  offered = { offered: false, reason: "all sessions share one workspace" };
  await open("turn", "Fork from here");
  assert.match(root.textContent!, /It begins without files: all sessions share one workspace/);
});

test("recording and steering message offer no fork", async () => {
  const rows = testSession.live.state.peek().rows;
  hide();
  for (const row of rows) assert.doesNotMatch((await renderText(<RowView row={row} />)) + root.innerHTML, /Fork|resend/);
  hide = showSession(testSession.live);
  const steer = rows.find((row) => row.kind === "user")!;
  await renderText(<RowView row={{ ...steer, begins: undefined }} session="s1" />);
  assert.equal(root.querySelector("button"), null);
});

test("note links to the event of the forked session", async () => {
  const note = async (from: string, checkpoint?: string) => {
    const [row] = new FrameScript().addObservation("forked", "", { from, at: 7, ...(checkpoint && { checkpoint }) }).play().rows;
    return renderText(<RowView row={row!} session="s9" />);
  };
  assert.match(await note("listed", "turn-1"), /Forked from The parent\. Files are as they were here\./);
  assert.equal(root.querySelector("a")!.getAttribute("href"), "/sessions/listed?at=7");
  assert.match(await note("purged"), /Forked from a deleted session\. Files are not from this point\./);
  assert.equal(root.querySelector("a"), null);
});

test("header names the forked session", async () => {
  const fork = new TestSession();
  fork.receive({ status: "hello", session: { ...made, id: "s1", parent: { id: "listed", seq: 7 } }, last_seq: 0, state: "idle" });
  await renderText(<SessionHeader live={fork.live} />);
  const link = root.querySelector(".fork-parent")!;
  assert.deepEqual([link.getAttribute("aria-label"), link.getAttribute("href")], ["Fork of The parent", "/sessions/listed?at=7"]);
});
