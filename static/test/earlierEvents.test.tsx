// Earlier events of a session while they load.

import "./testWindow";
import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { render } from "preact";
import { Chat } from "../src/components/Chat";
import { firstPaint } from "../src/firstPaint";
import { LiveSession } from "../src/state/liveSession";
import { mergeEarlier, readEarlierEvents } from "../src/state/earlierEvents";
import { emptyState } from "../src/state/screenState";
import type { SessionEvent } from "../src/wire/event";
import { root } from "./testSession";

const message = (seq: number) => ({ seq, at: "2026-01-01T00:00:00.000Z", source: "agent", observation: "message", content: `text ${seq}`, extras: {} });

let isAway = false;
globalThis.fetch = (async (address: string) => {
  const query = new URL(address, "http://127.0.0.1").searchParams;
  if (query.has("last")) return new Response(JSON.stringify({ items: [message(3)] }));
  if (isAway) return new Response('{"error":{"message":"the disk is full"}}', { status: 503 });
  return new Response(JSON.stringify({ items: [message(1), message(2)] }));
}) as typeof fetch;

/** Advances time in steps, so pending promises settle in between. */
async function advanceTime(context: TestContext, ms: number): Promise<void> {
  for (let step = 0; step < ms / 100; step += 1) {
    context.mock.timers.tick(100);
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
  }
}

test("conversation shows a loading note or error until earlier events arrive", async (context) => {
  await firstPaint;
  context.mock.timers.enable({ apis: ["setTimeout"] });
  Object.assign(globalThis, { WebSocket: class { close() {} } });
  isAway = true;
  const live = new LiveSession("s1");
  context.after(() => live.close());
  render(<Chat live={live} />, root);
  const line = () => root.querySelector(".earlier")?.textContent;
  await advanceTime(context, 1500);
  assert.match(root.textContent ?? "", /^Loading earlier messages….*text 3/);
  await advanceTime(context, 2000);
  assert.equal(line(), "Couldn't load earlier messages (the disk is full). Retrying…");
  isAway = false;
  await advanceTime(context, 2000);
  assert.equal(line(), undefined);
  assert.match(root.textContent ?? "", /^text 1.*text 2.*text 3/);
  render(null, root);
});

test("failures are reported from the third on until a success", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  isAway = true;
  const told: string[] = [];
  const taken: SessionEvent[] = [];
  const reader = { take: (events: SessionEvent[]) => void taken.push(...events), failing: (why: string) => void told.push(why) };
  const read = readEarlierEvents("s1", 2, reader, new AbortController().signal);
  await advanceTime(context, 1500);
  assert.deepEqual(told, []);
  await advanceTime(context, 1000);
  assert.deepEqual(told, ["the disk is full"]);
  isAway = false;
  await advanceTime(context, 2000);
  await read;
  assert.deepEqual(told, ["the disk is full", ""]);
  assert.deepEqual(taken.map(({ seq }) => seq), [1, 2]);
});

for (const [from, answer] of [
  ["the server", () => new Response('{"error":{"code":"unavailable","message":"the disk is full"}}', { status: 503 })],
  ["a proxy", () => new Response("nobody is there", { status: 404 })],
  ["nobody", () => Promise.reject(new Error("no answer"))],
] as const) {
  test(`reconnects within seconds after a long outage (${from})`, async (context) => {
    context.mock.timers.enable({ apis: ["setTimeout"] });
    const { fetch } = globalThis;
    context.after(() => (globalThis.fetch = fetch));
    globalThis.fetch = (async () => answer()) as typeof globalThis.fetch;
    const taken: SessionEvent[] = [];
    const read = readEarlierEvents("s1", 2, { take: (events) => void taken.push(...events), failing() {} }, new AbortController().signal);
    await advanceTime(context, 65_000);
    isAway = false;
    globalThis.fetch = fetch;
    await advanceTime(context, 5100);
    assert.deepEqual(taken.map(({ seq }) => seq), [1, 2]);
    await read;
  });
}

test("abort ends the wait and all reports", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  isAway = true;
  const told: string[] = [];
  const [between, within] = [new AbortController(), new AbortController()];
  const reader = { take() {}, failing: (why: string) => void told.push(why) };
  const reads = [readEarlierEvents("s1", 2, reader, between.signal), readEarlierEvents("s1", 2, reader, within.signal)];
  within.abort();
  await advanceTime(context, 500);
  between.abort();
  await Promise.all(reads);
  assert.deepEqual(told, []);
});

test("error while applying events is not retried", async () => {
  isAway = false;
  let tries = 0;
  const take = () => {
    tries += 1;
    throw new Error("a bug");
  };
  await assert.rejects(readEarlierEvents("s1", 2, { take, failing: () => {} }, new AbortController().signal), /a bug/);
  assert.equal(tries, 1);
});

test("merging earlier events keeps the current connection", () => {
  const shown = { ...emptyState, connections: 2 };
  assert.equal(mergeEarlier(emptyState, [{ local: "opened" }], shown).connections, 2, "a changed number would suppress the next resend");
});
