// A server whose data were put back from a backup, under a page that has seen more than that holds.

import "./dom";
import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { LiveSession } from "../src/state/live";
import { sessionOf } from "../src/state/list";
import type { Session } from "../src/wire/frame";
import { rowsOf, Script } from "./frames";
import { until } from "./stage";

class FakeSocket {
  static readonly OPEN = 1;
  static all: FakeSocket[] = [];
  readyState = 1;
  bufferedAmount = 0;
  sent: { action: string; id: string; args: { content: string } }[] = [];
  onopen?: () => void;
  onmessage?: (message: { data: string }) => void;
  onclose?: (event: { code: number }) => void;
  constructor(readonly url: string) {
    FakeSocket.all.push(this);
  }
  send(text: string) {
    this.sent.push(JSON.parse(text));
  }
  close() {
    this.readyState = 3;
  }
  /** What a server with these events says to one that has come. */
  brings(script: Script, after = 0): this {
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
Object.assign(globalThis, { WebSocket: FakeSocket });

const told = (...texts: string[]) => texts.reduce((script, text) => script.see("message", text, {}), new Script());
const sockets = async (count: number) => {
  await until(() => FakeSocket.all.length === count);
  return FakeSocket.all.at(-1)!;
};

/** A page that has seen three events, and whose connection was lost. */
async function opened(context: TestContext): Promise<LiveSession> {
  FakeSocket.all = [];
  localStorage.clear();
  globalThis.fetch = (async () => new Response('{"items":[]}')) as typeof fetch;
  const live = new LiveSession("s1");
  context.after(() => live.close());
  (await sockets(1)).brings(told("one", "two", "three"));
  assert.equal(live.state.value.lastSeq, 3);
  return live;
}

test("the page begins anew with what the server has, and hears what happens from then on", async (context) => {
  const live = await opened(context);
  FakeSocket.all[0]!.onclose?.({ code: 1001 });
  const script = told("one", "another two");
  (await sockets(2)).brings(script, 2);
  const socket = await sockets(3);
  assert.deepEqual(FakeSocket.all.map(({ url }) => url.split("session=s1")[1]), ["", "&after=2", ""]);
  assert.deepEqual([rowsOf(live.state.value), live.isWhole], [[], false]);
  socket.brings(script);
  assert.deepEqual([rowsOf(live.state.value), live.isWhole], [["text: one", "text: another two"], true]);
  assert.equal(live.log.entries.filter(({ frame }) => "seq" in frame && "source" in frame).length, 2);
  assert.equal(sessionOf("s1")?.last_seq, 2, "the list is told so, too");
  socket.say(script.see("message", "and three", {}).frames[2]!);
  await until(() => rowsOf(live.state.value).at(-1) === "text: and three");
});

test("also where it has written as much again since then", async (context) => {
  const live = await opened(context);
  FakeSocket.all[0]!.onclose?.({ code: 1001 });
  const script = told("one", "another two", "another three", "four");
  for (const frame of script.frames.slice(1)) Object.assign(frame, { at: "2026-01-02T00:00:00.000Z" });
  (await sockets(2)).brings(script, 2);
  (await sockets(3)).brings(script);
  assert.deepEqual(rowsOf(live.state.value), ["text: one", "text: another two", "text: another three", "text: four"]);
  // What it still has is neither drawn nor logged twice.
  FakeSocket.all[2]!.onclose?.({ code: 1001 });
  (await sockets(4)).brings(script, 3);
  assert.equal(live.state.value.caughtUp?.events, 0);
  assert.equal(live.log.entries.filter(({ frame }) => "seq" in frame && "source" in frame).length, 4);
});

test("what a person wrote goes out again, also where it was taken since that backup", async (context) => {
  const live = await opened(context);
  const [first] = FakeSocket.all;
  live.message("taken", "queue");
  live.message("not taken", "queue");
  first!.say({ status: "accepted", id: first!.sent[0]!.id, seq: 4 });
  await until(() => live.state.value.sending[0]?.seq === 4);
  first!.onclose?.({ code: 1001 });
  const behind = (await sockets(2)).brings(told("one"), 1);
  const { sent } = (await sockets(3)).brings(told("one"));
  assert.deepEqual([behind.sent, sent], [[], first!.sent]);
});

test("a past that is still on its way is not put before it", async (context) => {
  FakeSocket.all = [];
  const script = told(...Array.from({ length: 9 }, (_, n) => `then ${n}`));
  let bring = () => {};
  globalThis.fetch = (async (address: string) => {
    if (address.includes("last=")) return new Response(JSON.stringify({ items: script.frames.slice(6) }));
    return new Promise((resolve) => (bring = () => resolve(new Response(JSON.stringify({ items: script.frames.slice(0, 6) })))));
  }) as typeof fetch;
  const live = new LiveSession("s1");
  context.after(() => live.close());
  (await sockets(1)).brings(told("one"), 1);
  (await sockets(2)).brings(told("one"));
  assert.equal(live.past, null);
  bring();
  await until(() => live.isWhole);
  assert.deepEqual(rowsOf(live.state.value), ["text: one"]);
});
