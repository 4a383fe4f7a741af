import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { SessionSocket, type TransportListener, type SocketEndReason } from "../src/wire/socket";

/** Browser socket with the test as its server. */
class FakeSocket {
  static readonly OPEN = 1;
  static all: FakeSocket[] = [];
  readyState = 0;
  sent: unknown[] = [];
  bufferedAmount = 0;
  onopen: (() => void) | null = null;
  onmessage: ((message: { data: string }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;

  constructor(
    readonly url: string,
    readonly protocols: string[],
  ) {
    FakeSocket.all.push(this);
  }

  static get newest(): FakeSocket {
    const newest = FakeSocket.all.at(-1);
    assert.ok(newest);
    return newest;
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }

  close(): void {
    this.readyState = 3;
  }

  open(): this {
    this.readyState = 1;
    this.onopen?.();
    return this;
  }

  say(...frames: object[]): this {
    for (const frame of frames) this.onmessage?.({ data: JSON.stringify(frame) });
    return this;
  }

  drop(code: number): void {
    this.readyState = 3;
    this.onclose?.({ code });
  }
}

/** Browser events sent to the socket. */
const listeners = new Map<string, () => void>();
const eventTarget = { addEventListener: (name: string, hear: () => void) => listeners.set(name, hear), removeEventListener() {} };

mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
Object.assign(globalThis, eventTarget, {
  window: globalThis,
  document: { ...eventTarget, hidden: false, documentElement: { dataset: { server: "ab12" } } },
  localStorage: { getItem: (key: string) => (key === "greenroom-secret-ab12" ? "1.2" : null) },
  location: { protocol: "http:", host: "127.0.0.1:3000" },
  WebSocket: FakeSocket,
});

let cursor = 0;
let madeAt = "";
let heard: string[] = [];
let diagnosis: SocketEndReason | Promise<null> | null = null;

beforeEach(() => {
  FakeSocket.all = [];
  cursor = 0;
  madeAt = "";
  heard = [];
  diagnosis = null;
});

function connect(before?: Promise<void>): SessionSocket {
  const listener: TransportListener = {
    cursor: () => ({ seq: cursor, at: madeAt }),
    opened: () => heard.push("opened"),
    received: (frames) => heard.push(`${frames.length} frames`),
    lost: () => heard.push("lost"),
    ended: (why) => heard.push(why),
    rolledBack: () => {
      heard.push("set back");
      cursor = 0;
    },
    diagnose: async () => diagnosis,
  };
  return new SessionSocket("s1", listener, before);
}

const synced = { status: "synced", seq: 1 };

test("frames arrive in batches and the end of a replay at once", () => {
  const socket = connect();
  FakeSocket.newest.open().say({ seq: 1 }, { seq: 2 });
  assert.deepEqual(heard, ["opened"]);
  FakeSocket.newest.say(synced);
  assert.deepEqual(heard, ["opened", "3 frames"]);
  FakeSocket.newest.say({ seq: 3 }, { seq: 4 });
  mock.timers.tick(20);
  assert.deepEqual(heard, ["opened", "3 frames", "2 frames"]);
  socket.close();
});

for (const code of [1000, 1001, 1006, 1013]) {
  test(`reconnects from the cursor after close code ${code}`, () => {
    const socket = connect();
    assert.equal(FakeSocket.newest.url, "ws://127.0.0.1:3000/ws?session=s1");
    FakeSocket.newest.open().say(synced).say({ seq: 7 });
    cursor = 7;
    FakeSocket.newest.drop(code);
    assert.deepEqual(heard, ["opened", "1 frames", "1 frames", "lost"], "received frames are kept");
    mock.timers.tick(250);
    assert.equal(FakeSocket.newest.url, "ws://127.0.0.1:3000/ws?session=s1&after=6");
    socket.close();
  });
}

test("retries for ever with at most ten seconds between", () => {
  const socket = connect();
  for (let attempt = 1; attempt <= 50; attempt += 1) {
    FakeSocket.newest.open().drop(1006);
    mock.timers.tick(10_000);
    assert.equal(FakeSocket.all.length, attempt + 1);
  }
  socket.close();
});

test("final close codes end the socket", () => {
  for (const [code, why] of [[4401, "signed_out"], [4404, "no_such_session"]] as const) {
    const socket = connect();
    FakeSocket.newest.open().drop(code);
    assert.equal(heard.at(-1), why);
    const before = FakeSocket.all.length;
    mock.timers.tick(60_000);
    assert.equal(FakeSocket.all.length, before);
    socket.close();
  }
});

test("failed handshake is diagnosed", async () => {
  const socket = connect();
  FakeSocket.newest.drop(1006);
  await Promise.resolve();
  assert.deepEqual(heard, ["lost"]);
  mock.timers.tick(250);
  diagnosis = "signed_out";
  FakeSocket.newest.drop(1006);
  await Promise.resolve();
  assert.deepEqual(heard, ["lost", "signed_out"]);
  socket.close();
});

test("unanswered ping reconnects, an answered one does not", () => {
  const socket = connect();
  const first = FakeSocket.newest.open().say(synced);
  mock.timers.tick(20_000);
  assert.deepEqual(first.sent, [{ action: "ping" }]);
  first.say({ status: "pong" });
  mock.timers.tick(10_000);
  assert.ok(!heard.includes("lost"));
  mock.timers.tick(10_000);
  mock.timers.tick(10_000);
  assert.equal(heard.at(-1), "lost");
  mock.timers.tick(250);
  assert.notEqual(FakeSocket.newest, first);
  socket.close();
});

/** Returns the time from the next ping to the end of the newest connection. */
function measurePongLimit(): number {
  const { newest } = FakeSocket;
  const pings = newest.sent.length;
  for (let second = 0; newest.sent.length === pings; second += 1) {
    assert.ok(second <= 20, "no ping is due");
    mock.timers.tick(1000);
  }
  for (let second = 1; ; second += 1) {
    mock.timers.tick(1000);
    if (newest.readyState !== 3) continue;
    mock.timers.tick(10_000);
    assert.notEqual(FakeSocket.newest, newest);
    return second;
  }
}

test("pong limit doubles until a replay ends and a ping is answered", () => {
  const socket = connect();
  FakeSocket.newest.open().say(synced);
  const waited = Array.from({ length: 7 }, () => {
    const seconds = measurePongLimit();
    // A long frame is arriving: only the frames before it are delivered.
    FakeSocket.newest.open().say({ status: "hello", session: null, last_seq: 9 }, { status: "pong" });
    return seconds;
  });
  assert.deepEqual(waited, [10, 20, 40, 80, 160, 160, 160]);
  FakeSocket.newest.say({ seq: 9 }, synced, { status: "pong" });
  assert.equal(measurePongLimit(), 10);
  socket.close();
});

test("any frame counts as an answer, and later silence is still detected", () => {
  const socket = connect();
  const only = FakeSocket.newest.open().say(synced);
  mock.timers.tick(20_000);
  mock.timers.tick(9000);
  only.say({ seq: 2 });
  mock.timers.tick(11_000);
  assert.equal(only.readyState, 1);
  // Another frame answered the first ping; the second one still has its limit.
  mock.timers.tick(10_000);
  assert.deepEqual([only.readyState, only.sent.length], [3, 2]);
  socket.close();
});

test("repeated early retries do not extend the pong limit", () => {
  const socket = connect();
  const only = FakeSocket.newest.open().say(synced);
  for (let second = 0; second < 10; second += 1) {
    listeners.get("online")?.();
    mock.timers.tick(1000);
  }
  assert.deepEqual([only.readyState, only.sent.length], [3, 1]);
  socket.close();
});

test("pong limit extends while queued bytes are sent", () => {
  const socket = connect();
  const only = FakeSocket.newest.open().say(synced);
  only.bufferedAmount = 300_000;
  mock.timers.tick(20_000);
  for (const left of [200_000, 100_000, 0]) {
    only.bufferedAmount = left;
    mock.timers.tick(10_000);
    assert.equal(only.readyState, 1, `${left} bytes are left`);
  }
  mock.timers.tick(10_000);
  assert.equal(only.readyState, 3);
  const stuck = (mock.timers.tick(10_000), FakeSocket.newest.open());
  stuck.bufferedAmount = 300_000;
  assert.equal(measurePongLimit(), 20, "the line sends nothing");
  assert.equal(stuck.readyState, 3);
  socket.close();
});

test("older server data triggers one full replay", () => {
  cursor = 41;
  const socket = connect();
  const first = FakeSocket.newest.open();
  first.say({ status: "hello", session: null, last_seq: 30 }, { seq: 31 }, synced);
  assert.equal(first.readyState, 3);
  assert.deepEqual(FakeSocket.all.map(({ url }) => url.split("s1")[1]), ["&after=40", ""]);
  FakeSocket.newest.open().say({ status: "hello", session: null, last_seq: 30 }, { seq: 1 }, synced);
  assert.deepEqual(heard, ["opened", "set back", "opened", "3 frames"]);
  // Agents may put any field into their events.
  cursor = 30;
  FakeSocket.newest.say({ seq: 31, source: "agent", status: "hello", last_seq: -1 });
  assert.deepEqual([FakeSocket.all.length, heard.includes("set back", 2)], [2, false]);
  socket.close();
});

test("differing event at the cursor triggers one full replay", () => {
  const event = (seq: number, at: string) => ({ seq, at, source: "agent", observation: "message", content: "", extras: {} });
  cursor = 7;
  madeAt = "monday";
  const socket = connect();
  const first = FakeSocket.newest.open().say({ status: "hello", session: null, last_seq: 9 });
  first.say(event(7, "monday"), event(8, "monday"), synced);
  assert.deepEqual(heard, ["opened", "3 frames"], "known events are not delivered again");
  cursor = 8;
  first.drop(1001);
  mock.timers.tick(250);
  FakeSocket.newest.open().say({ status: "hello", session: null, last_seq: 9 }, event(8, "tuesday"), event(9, "tuesday"), synced);
  assert.deepEqual(heard.slice(2), ["lost", "opened", "set back"]);
  FakeSocket.newest.open().say({ status: "hello", session: null, last_seq: 9 }, event(1, "monday"), event(8, "tuesday"), synced);
  assert.deepEqual(FakeSocket.all.map(({ url }) => url.split("s1")[1]), ["&after=6", "&after=7", ""]);
  assert.deepEqual(heard.slice(5), ["opened", "4 frames"]);
  socket.close();
});

const conflict = { error: { code: "conflict", message: "another version of Greenroom wrote it" } };

test("unreadable session is shown and retried only on request", () => {
  const hello = { status: "hello", session: null, last_seq: 1 };
  for (const [n, frames] of [[hello, conflict, { seq: 1 }, synced], [hello, synced, conflict]].entries()) {
    const socket = connect();
    const only = FakeSocket.newest.open().say(...frames);
    assert.deepEqual([heard.at(-1), only.readyState], ["unreadable", 3]);
    assert.ok(heard.includes(n === 0 ? "4 frames" : "1 frames"), "the journal has arrived");
    const before = FakeSocket.all.length;
    mock.timers.tick(600_000);
    assert.equal(FakeSocket.all.length, before);
    socket.retryNow();
    assert.equal(FakeSocket.all.length, before + 1);
    FakeSocket.newest.open().say(hello, conflict, { ...hello, last_seq: 2 }, synced);
    assert.equal(FakeSocket.newest.readyState, 1, "the session can be loaded again");
    FakeSocket.newest.say({ error: { code: "busy", message: "not now" }, id: "v" });
    assert.equal(FakeSocket.newest.readyState, 1, "the error concerns one request");
    heard = [];
    FakeSocket.newest.say({ ...conflict, id: "w" });
    assert.deepEqual([heard, FakeSocket.newest.readyState], [["2 frames", "unreadable"], 3], "a reply may carry the error first");
    socket.close();
  }
});

test("connection attempt ends after ten seconds", () => {
  const socket = connect();
  const first = FakeSocket.newest;
  mock.timers.tick(9999);
  assert.deepEqual(heard, []);
  mock.timers.tick(1);
  assert.deepEqual([heard, first.readyState], [["lost"], 3]);
  mock.timers.tick(250);
  assert.equal(FakeSocket.all.length, 2);
  FakeSocket.newest.open();
  mock.timers.tick(10_000);
  assert.deepEqual(heard, ["lost", "opened"], "an open connection is kept");
  socket.close();
});

test("early retry replaces a hanging connection", () => {
  const socket = connect();
  const first = FakeSocket.newest;
  mock.timers.tick(1000);
  listeners.get("online")?.();
  assert.equal(FakeSocket.all.length, 1, "the attempt has just begun");
  mock.timers.tick(1500);
  listeners.get("online")?.();
  assert.deepEqual([FakeSocket.all.length, first.readyState], [2, 3]);
  socket.retryNow();
  assert.equal(FakeSocket.all.length, 3, "a user's retry is immediate");
  FakeSocket.newest.open();
  socket.retryNow();
  listeners.get("online")?.();
  assert.equal(FakeSocket.all.length, 3);
  assert.deepEqual(FakeSocket.newest.sent, [{ action: "ping" }]);
  socket.close();
});

test("early retry waits for the cursor", async () => {
  listeners.clear();
  let there = () => {};
  const socket = connect(new Promise((resolve) => (there = resolve)));
  listeners.get("online")?.();
  listeners.get("visibilitychange")?.();
  assert.equal(FakeSocket.all.length, 0);
  cursor = 7;
  there();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(FakeSocket.all.map(({ url }) => url), ["ws://127.0.0.1:3000/ws?session=s1&after=6"]);
  mock.timers.tick(2500);
  listeners.get("online")?.();
  assert.equal(FakeSocket.all.length, 2, "early retries work from then on");
  socket.close();
});

test("socket closed before its start never connects", async () => {
  listeners.clear();
  let there = () => {};
  connect(new Promise((resolve) => (there = resolve))).close();
  there();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual([FakeSocket.all.length, listeners.size], [0, 0]);
});

test("abandoned socket delivers nothing", () => {
  const socket = connect();
  const { onclose } = FakeSocket.newest;
  socket.retryNow();
  FakeSocket.newest.open();
  onclose?.({ code: 4404 });
  mock.timers.tick(1000);
  assert.deepEqual([FakeSocket.all.length, heard], [2, ["opened"]]);
  socket.close();
});

test("diagnosis is ignored once a newer connection exists", async () => {
  const socket = connect();
  let find = () => {};
  diagnosis = new Promise<null>((resolve) => (find = () => resolve(null)));
  FakeSocket.newest.drop(1006);
  socket.retryNow();
  FakeSocket.newest.open();
  find();
  await new Promise((resolve) => setImmediate(resolve));
  mock.timers.tick(1000);
  assert.deepEqual([FakeSocket.all.length, heard], [2, ["opened"]]);
  socket.close();
});

test("closed socket stays closed", () => {
  const socket = connect();
  const only = FakeSocket.newest.open();
  socket.close();
  assert.equal(only.readyState, 3);
  mock.timers.tick(60_000);
  assert.deepEqual([FakeSocket.all.length, heard], [1, ["opened"]]);
  assert.equal(socket.send({ action: "ping" }), false);
});

test("handshake offers the secret of this browser", () => {
  const socket = connect();
  assert.deepEqual(FakeSocket.newest.protocols, ["greenroom", "secret.1.2"]);
  socket.close();
});
