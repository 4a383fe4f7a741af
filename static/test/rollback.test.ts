// Server restored from a backup, behind a page with newer events.

import "./testWindow";
import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { LiveSession } from "../src/state/liveSession";
import { sessionOf } from "../src/state/sessionList";
import type { Session } from "../src/wire/frame";
import { rowsOf, FrameScript } from "./frameScript";
import { waitUntil } from "./testSession";

class RollbackSocket {
  static readonly OPEN = 1;
  static all: RollbackSocket[] = [];
  readyState = 1;
  bufferedAmount = 0;
  sent: { action: string; id: string; args: { content: string } }[] = [];
  onopen?: () => void;
  onmessage?: (message: { data: string }) => void;
  onclose?: (event: { code: number }) => void;
  constructor(readonly url: string) {
    RollbackSocket.all.push(this);
  }
  send(text: string) {
    this.sent.push(JSON.parse(text));
  }
  close() {
    this.readyState = 3;
  }
  /** Sends what a server with these events sends to a new connection. */
  answers(script: FrameScript, after = 0): this {
    const last_seq = script.frames.length;
    const session = { id: "s1", title: "One", state: "idle", last_seq } as Session;
    this.onopen?.();
    this.say({ status: "hello", session, last_seq, state: "idle" }, ...script.frames.slice(after), { status: "synced", seq: last_seq });
    return this;
  }
  say(...frames: object[]): void {
    for (const frame of frames) this.onmessage?.({ data: JSON.stringify(frame) });
  }
}
Object.assign(globalThis, { WebSocket: RollbackSocket });

const messages = (...texts: string[]) => texts.reduce((script, text) => script.addObservation("message", text, {}), new FrameScript());
const sockets = async (count: number) => {
  await waitUntil(() => RollbackSocket.all.length === count);
  return RollbackSocket.all.at(-1)!;
};

/** Opens a page with three events and a lost connection. */
async function openPage(context: TestContext): Promise<LiveSession> {
  RollbackSocket.all = [];
  localStorage.clear();
  globalThis.fetch = (async () => new Response('{"items":[]}')) as typeof fetch;
  const live = new LiveSession("s1");
  context.after(() => live.close());
  (await sockets(1)).answers(messages("one", "two", "three"));
  assert.equal(live.state.value.lastSeq, 3);
  return live;
}

test("page starts over with the server's events and follows new ones", async (context) => {
  const live = await openPage(context);
  RollbackSocket.all[0]!.onclose?.({ code: 1001 });
  const script = messages("one", "another two");
  (await sockets(2)).answers(script, 2);
  const socket = await sockets(3);
  assert.deepEqual(RollbackSocket.all.map(({ url }) => url.split("session=s1")[1]), ["", "&after=2", ""]);
  assert.deepEqual([rowsOf(live.state.value), live.isComplete], [[], false]);
  socket.answers(script);
  assert.deepEqual([rowsOf(live.state.value), live.isComplete], [["text: one", "text: another two"], true]);
  assert.equal(live.log.entries.filter(({ frame }) => "seq" in frame && "source" in frame).length, 2);
  assert.equal(sessionOf("s1")?.last_seq, 2, "the list is updated, too");
  socket.say(script.addObservation("message", "and three", {}).frames[2]!);
  await waitUntil(() => rowsOf(live.state.value).at(-1) === "text: and three");
});

test("rollback is detected after the journal grew past the cursor", async (context) => {
  const live = await openPage(context);
  RollbackSocket.all[0]!.onclose?.({ code: 1001 });
  const script = messages("one", "another two", "another three", "four");
  for (const frame of script.frames.slice(1)) Object.assign(frame, { at: "2026-01-02T00:00:00.000Z" });
  (await sockets(2)).answers(script, 2);
  (await sockets(3)).answers(script);
  assert.deepEqual(rowsOf(live.state.value), ["text: one", "text: another two", "text: another three", "text: four"]);
  // Events still on the server are neither drawn nor logged twice.
  RollbackSocket.all[2]!.onclose?.({ code: 1001 });
  (await sockets(4)).answers(script, 3);
  assert.equal(live.state.value.caughtUp?.events, 0);
  assert.equal(live.log.entries.filter(({ frame }) => "seq" in frame && "source" in frame).length, 4);
});

test("requests of the user are sent again, also those accepted since the backup", async (context) => {
  const live = await openPage(context);
  const [first] = RollbackSocket.all;
  live.message("taken", "queue");
  live.message("not taken", "queue");
  first!.say({ status: "accepted", id: first!.sent[0]!.id, seq: 4 });
  await waitUntil(() => live.state.value.pending[0]?.seq === 4);
  first!.onclose?.({ code: 1001 });
  const behind = (await sockets(2)).answers(messages("one"), 1);
  const { sent } = (await sockets(3)).answers(messages("one"));
  assert.deepEqual([behind.sent, sent], [[], first!.sent]);
});

test("earlier events in flight are discarded", async (context) => {
  RollbackSocket.all = [];
  const script = messages(...Array.from({ length: 9 }, (_, n) => `then ${n}`));
  let bring = () => {};
  globalThis.fetch = (async (address: string) => {
    if (address.includes("last=")) return new Response(JSON.stringify({ items: script.frames.slice(6) }));
    return new Promise((resolve) => (bring = () => resolve(new Response(JSON.stringify({ items: script.frames.slice(0, 6) })))));
  }) as typeof fetch;
  const live = new LiveSession("s1");
  context.after(() => live.close());
  (await sockets(1)).answers(messages("one"), 1);
  (await sockets(2)).answers(messages("one"));
  assert.equal(live.earlierEvents, null);
  bring();
  await waitUntil(() => live.isComplete);
  assert.deepEqual(rowsOf(live.state.value), ["text: one"]);
});
