// What lies before the newest part of a session, while it is on its way.

import "./dom";
import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { render } from "preact";
import { Chat } from "../src/components/Chat";
import { painted } from "../src/painted";
import { LiveSession } from "../src/state/live";
import { inOrder, readPast } from "../src/state/past";
import { empty } from "../src/state/session";
import type { Event } from "../src/wire/event";
import { root } from "./stage";

const message = (seq: number) => ({ seq, at: "2026-01-01T00:00:00.000Z", source: "agent", observation: "message", content: `text ${seq}`, extras: {} });

let isAway = false;
globalThis.fetch = (async (address: string) => {
  const query = new URL(address, "http://127.0.0.1").searchParams;
  if (query.has("last")) return new Response(JSON.stringify({ items: [message(3)] }));
  if (isAway) return new Response('{"error":{"message":"the disk is full"}}', { status: 503 });
  return new Response(JSON.stringify({ items: [message(1), message(2)] }));
}) as typeof fetch;

/** Time goes by, in steps in which everything that waits has its turn. */
async function pass(context: TestContext, ms: number): Promise<void> {
  for (let step = 0; step < ms / 100; step += 1) {
    context.mock.timers.tick(100);
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
  }
}

test("as long as it is not there the conversation does not seem to begin, and what hinders it is said", async (context) => {
  await painted;
  context.mock.timers.enable({ apis: ["setTimeout"] });
  Object.assign(globalThis, { WebSocket: class { close() {} } });
  isAway = true;
  const live = new LiveSession("s1");
  context.after(() => live.close());
  render(<Chat live={live} />, root);
  const line = () => root.querySelector(".earlier")?.textContent;
  await pass(context, 1500);
  assert.match(root.textContent ?? "", /^Loading what came before….*text 3/);
  await pass(context, 2000);
  assert.equal(line(), "What came before could not be loaded yet (the disk is full). It is tried again.");
  isAway = false;
  await pass(context, 2000);
  assert.equal(line(), undefined);
  assert.match(root.textContent ?? "", /^text 1.*text 2.*text 3/);
  render(null, root);
});

test("failures are said from the third on, until one is none", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  isAway = true;
  const told: string[] = [];
  const taken: Event[] = [];
  const reader = { take: (events: Event[]) => void taken.push(...events), troubled: (why: string) => void told.push(why) };
  const read = readPast("s1", 2, reader, new AbortController().signal);
  await pass(context, 1500);
  assert.deepEqual(told, []);
  await pass(context, 1000);
  assert.deepEqual(told, ["the disk is full"]);
  isAway = false;
  await pass(context, 2000);
  await read;
  assert.deepEqual(told, ["the disk is full", ""]);
  assert.deepEqual(taken.map(({ seq }) => seq), [1, 2]);
});

for (const [from, answer] of [
  ["the server", () => new Response('{"error":{"code":"unavailable","message":"the disk is full"}}', { status: 503 })],
  ["a proxy", () => new Response("nobody is there", { status: 404 })],
  ["nobody", () => Promise.reject(new Error("no answer"))],
] as const) {
  test(`after a long time without an answer it comes within seconds (${from})`, async (context) => {
    context.mock.timers.enable({ apis: ["setTimeout"] });
    const { fetch } = globalThis;
    context.after(() => (globalThis.fetch = fetch));
    globalThis.fetch = (async () => answer()) as typeof globalThis.fetch;
    const taken: Event[] = [];
    const read = readPast("s1", 2, { take: (events) => void taken.push(...events), troubled() {} }, new AbortController().signal);
    await pass(context, 65_000);
    isAway = false;
    globalThis.fetch = fetch;
    await pass(context, 5100);
    assert.deepEqual(taken.map(({ seq }) => seq), [1, 2]);
    await read;
  });
}

test("who leaves is not kept waiting, and told nothing any more", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  isAway = true;
  const told: string[] = [];
  const [between, within] = [new AbortController(), new AbortController()];
  const reader = { take() {}, troubled: (why: string) => void told.push(why) };
  const reads = [readPast("s1", 2, reader, between.signal), readPast("s1", 2, reader, within.signal)];
  within.abort();
  await pass(context, 500);
  between.abort();
  await Promise.all(reads);
  assert.deepEqual(told, []);
});

test("what cannot be taken in is no failure of the network, and is not tried again", async () => {
  isAway = false;
  let tries = 0;
  const take = () => {
    tries += 1;
    throw new Error("a bug");
  };
  await assert.rejects(readPast("s1", 2, { take, troubled: () => {} }, new AbortController().signal), /a bug/);
  assert.equal(tries, 1);
});

test("the connection in which the past arrives is the one that it was", () => {
  const shown = { ...empty, connections: 2 };
  assert.equal(inOrder(empty, [{ local: "opened" }], shown).connections, 2, "else the next one would be taken for it, and resend nothing");
});
