// A session that another version of Greenroom has written: its journal is shown, and nobody goes on with it.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { Outbox } from "../src/components/Outbox";
import { StateLine } from "../src/components/StateLine";
import { readPast } from "../src/state/past";
import { changeSession } from "../src/wire/manage";
import { Script, rowsOf } from "./frames";
import { press, root, settled, shown, Stage } from "./stage";

const WORDS = "session `s1` cannot go on: another version of Greenroom wrote it; start that one, or a newer one, on this journal";
const hello = { status: "hello", session: null, last_seq: 2, state: "running" };
const conflict = { error: { code: "conflict", message: WORDS } };

beforeEach(() => localStorage.clear());
afterEach(() => render(null, root));

/** A page that has its journal, and has left it for what it is. */
function left(stage = new Stage()): Stage {
  stage.listener.opened();
  stage.say(hello, conflict, ...new Script().see("message", "what was said", {}).state("running").frames, { status: "synced", seq: 2 });
  stage.listener.refused("unreadable");
  return stage;
}

test("it says so in words, with a way to ask again, and beside what can be read", async () => {
  const { live, listener } = left();
  const view = <><Outbox live={live} /><StateLine live={live} /></>;
  assert.equal(await shown(view), `${WORDS}Try againIt can only be read`);
  assert.deepEqual([rowsOf(live.state.value), live.isWhole], [["text: what was said"], true]);
  press("Try again");
  listener.opened();
  listener.received([hello as never, conflict, { status: "synced", seq: 2 }]);
  const before = root.querySelector("[role=alert]");
  listener.refused("unreadable");
  await settled();
  assert.equal(root.textContent, `${WORDS}Try againIt can only be read`, "and nothing of a connection");
  assert.equal(root.querySelector("[role=alert]"), before, "it is said once");
  listener.opened();
  listener.received([hello as never, { status: "synced", seq: 2 }]);
  await settled();
  assert.doesNotMatch(root.textContent ?? "", /can only be read|cannot go on/, "a newer server has it again");
});

test("what is asked of it is given back with these words, and nothing seems to be on its way", async () => {
  const stage = new Stage();
  stage.isConnected = false;
  stage.live.message("written before", "queue");
  stage.live.interrupt();
  left(stage).live.message("written now", "queue");
  const { sending } = stage.live.state.value;
  assert.deepEqual(sending.map(({ refusal }) => refusal), [WORDS, WORDS, WORDS]);
  assert.equal(stage.live.stopping.value, 0);
  assert.deepEqual(stage.sent, []);
  assert.equal(Object.keys(localStorage).length, 2, "the words are kept");
});

test("a connection that is refused for it is not tried again either", async () => {
  const { listener, live } = new Stage();
  globalThis.fetch = (async () => new Response(JSON.stringify(conflict), { status: 409 })) as typeof fetch;
  assert.equal(await listener.diagnose(), "unreadable");
  assert.equal(live.state.value.trouble, WORDS);
});

test("a past that the server refuses is said at once, and asked for seldom", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  let asked = 0;
  globalThis.fetch = (async () => {
    asked += 1;
    return new Response(JSON.stringify(conflict), { status: 409 });
  }) as typeof fetch;
  const told: string[] = [];
  const leave = new AbortController();
  const read = readPast("s1", 2, { take() {}, troubled: (why) => void told.push(why) }, leave.signal);
  for (let second = 0; second < 59; second += 1) {
    context.mock.timers.tick(1000);
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
  }
  assert.deepEqual([asked, new Set(told)], [2, new Set([WORDS])]);
  leave.abort();
  await read;
});

test("where another thing was told first, it is known by the answer to a wish, and so said", () => {
  const stage = new Stage();
  stage.listener.opened();
  stage.say({ ...hello, state: "idle" }, { error: { code: "overloaded", message: "not now" } }, { status: "synced", seq: 2 });
  stage.live.message("first", "queue");
  stage.live.message("second", "queue");
  stage.say({ ...conflict, id: stage.sent[0]!.id });
  stage.listener.refused("unreadable");
  const { sending, trouble } = stage.live.state.value;
  assert.deepEqual([trouble, ...sending.map(({ refusal }) => refusal)], [WORDS, WORDS, WORDS]);
});

test("a conflict that REST answers is of what was asked there alone", async () => {
  const { live } = new Stage();
  const before = live.state.value;
  globalThis.fetch = (async () => new Response('{"error":{"code":"conflict","message":"it was changed meanwhile"}}', { status: 409 })) as typeof fetch;
  await assert.rejects(changeSession("s1", { title: "mine" }), /changed meanwhile/);
  assert.equal(live.state.value, before);
});
