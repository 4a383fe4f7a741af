// Session written by another version of Greenroom: its journal is shown, and it cannot continue.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { RejectedRequests } from "../src/components/RejectedRequests";
import { StateLine } from "../src/components/StateLine";
import { readEarlierEvents } from "../src/state/earlierEvents";
import { changeSession } from "../src/wire/lazyRest";
import { FrameScript, rowsOf } from "./frameScript";
import { press, root, settled, renderText, TestSession } from "./testSession";

const WORDS = "session `s1` cannot go on: another version of Greenroom wrote it; start that one, or a newer one, on this journal";
const hello = { status: "hello", session: null, last_seq: 2, state: "running" };
const conflict = { error: { code: "conflict", message: WORDS } };

beforeEach(() => localStorage.clear());
afterEach(() => render(null, root));

/** Opens such a page whose socket has ended. */
function openUnreadable(testSession = new TestSession()): TestSession {
  testSession.listener.opened();
  testSession.receive(hello, conflict, ...new FrameScript().addObservation("message", "what was said", {}).state("running").frames, { status: "synced", seq: 2 });
  testSession.listener.ended("unreadable");
  return testSession;
}

test("unreadable session shows its journal, the error and a retry", async () => {
  const { live, listener } = openUnreadable();
  const view = <><RejectedRequests live={live} /><StateLine live={live} /></>;
  assert.equal(await renderText(view), `${WORDS.replaceAll("`", "")}Try againRead-only`);
  assert.deepEqual([rowsOf(live.state.value), live.isComplete], [["text: what was said"], true]);
  press("Try again");
  listener.opened();
  listener.received([hello as never, conflict, { status: "synced", seq: 2 }]);
  const before = root.querySelector("[role=alert]");
  listener.ended("unreadable");
  await settled();
  assert.equal(root.textContent, `${WORDS.replaceAll("`", "")}Try againRead-only`, "no connection status");
  assert.equal(root.querySelector("[role=alert]"), before, "the error is shown once");
  listener.opened();
  listener.received([hello as never, { status: "synced", seq: 2 }]);
  await settled();
  assert.doesNotMatch(root.textContent ?? "", /Read-only|cannot go on/, "a newer server can continue the session");
});

test("requests are rejected with the error and none stays pending", async () => {
  const testSession = new TestSession();
  testSession.isConnected = false;
  testSession.live.message("written before", "queue");
  testSession.live.interrupt();
  openUnreadable(testSession).live.message("written now", "queue");
  const { pending } = testSession.live.state.value;
  assert.deepEqual(pending.map(({ rejection }) => rejection), [WORDS, WORDS, WORDS]);
  assert.equal(testSession.live.interrupting.value, 0);
  assert.deepEqual(testSession.sent, []);
  assert.equal(Object.keys(localStorage).length, 2, "the text is kept");
});

test("rejected connection is not retried", async () => {
  const { listener, live } = new TestSession();
  globalThis.fetch = (async () => new Response(JSON.stringify(conflict), { status: 409 })) as typeof fetch;
  assert.equal(await listener.diagnose(), "unreadable");
  assert.equal(live.state.value.problem, WORDS);
});

test("rejected earlier events are reported at once and retried rarely", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  let asked = 0;
  globalThis.fetch = (async () => {
    asked += 1;
    return new Response(JSON.stringify(conflict), { status: 409 });
  }) as typeof fetch;
  const told: string[] = [];
  const leave = new AbortController();
  const read = readEarlierEvents("s1", 2, { take() {}, failing: (why) => void told.push(why) }, leave.signal);
  for (let second = 0; second < 59; second += 1) {
    context.mock.timers.tick(1000);
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
  }
  assert.deepEqual([asked, new Set(told)], [2, new Set([WORDS])]);
  leave.abort();
  await read;
});

test("session is recognised as unreadable by a reply", () => {
  const testSession = new TestSession();
  testSession.listener.opened();
  testSession.receive({ ...hello, state: "idle" }, { error: { code: "overloaded", message: "not now" } }, { status: "synced", seq: 2 });
  testSession.live.message("first", "queue");
  testSession.live.message("second", "queue");
  testSession.receive({ ...conflict, id: testSession.sent[0]!.id });
  testSession.listener.ended("unreadable");
  const { pending, problem } = testSession.live.state.value;
  assert.deepEqual([problem, ...pending.map(({ rejection }) => rejection)], [WORDS, WORDS, WORDS]);
});

test("conflict from REST concerns only that call", async () => {
  const { live } = new TestSession();
  const before = live.state.value;
  globalThis.fetch = (async () => new Response('{"error":{"code":"conflict","message":"it was changed meanwhile"}}', { status: 409 })) as typeof fetch;
  await assert.rejects(changeSession("s1", { title: "mine" }), /changed meanwhile/);
  assert.equal(live.state.value, before);
});
