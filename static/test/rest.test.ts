import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { LiveSession } from "../src/state/liveSession";
import { draftKey, storedRequests } from "../src/state/pendingStorage";
import { endSession } from "../src/wire/lazyRest";
import { getSession, newestEvents, RestError } from "../src/wire/rest";

test("connection broken within an answer is a connection error", async () => {
  const broken = new ReadableStream({ start: (stream) => stream.error(new TypeError("terminated")) });
  for (const answer of [async () => new Response(broken), () => Promise.reject(new TypeError("refused"))]) {
    globalThis.fetch = answer as typeof fetch;
    await assert.rejects(getSession("s1"), (error) => error instanceof RestError && error.status === 0);
  }
});

test("silent server times out and a slow one does not", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const passes = async (ms: number) => {
    await new Promise(setImmediate);
    context.mock.timers.tick(ms);
    await new Promise(setImmediate);
  };
  let stream!: ReadableStreamDefaultController<Uint8Array>;
  let begins = () => {};
  globalThis.fetch = ((_: string, { signal }: RequestInit) =>
    new Promise((resolve, reject) => {
      const body = new ReadableStream<Uint8Array>({ start: (controller) => void (stream = controller) });
      signal!.addEventListener("abort", () => {
        reject(signal!.reason);
        stream.error(signal!.reason);
      });
      begins = () => resolve(new Response(body));
    })) as typeof fetch;
  /** Returns the outcome of a call after some time. */
  const after = async (call: Promise<unknown>, ms: number) => {
    let became = "waits";
    call.then(
      () => (became = "answered"),
      (error: unknown) => (became = error instanceof RestError && error.status === 0 ? "given up" : String(error)),
    );
    await passes(ms);
    return became;
  };
  assert.equal(await after(getSession("s1"), 9000), "waits");
  assert.equal(await after(getSession("s1"), 11_000), "given up");
  assert.equal(await after(newestEvents("s1", 60), 2100), "given up", "the socket waits for these");
  assert.equal(await after(endSession("s1"), 60_000), "waits", "the write may have succeeded");

  const slow = newestEvents("s1", 60);
  await passes(1500);
  begins();
  for (const piece of ['{"items":[{"se', 'q":7},{"grüße":', "1}]}"]) {
    await passes(1500);
    stream.enqueue(new TextEncoder().encode(piece));
  }
  await passes(1500);
  stream.close();
  assert.deepEqual(await slow, [{ seq: 7 }, { grüße: 1 }]);
  const broken = getSession("s1");
  begins();
  assert.equal(await after(broken, 11_000), "given up", "also within an answer");
});

test("only Greenroom's own 404 means that the session is gone", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  let sockets: { onclose?: (event: { code: number }) => void }[] = [];
  class Socket {
    onclose?: (event: { code: number }) => void;
    constructor() {
      sockets.push(this);
    }
    close() {}
  }
  const isAnswered = async (answer: () => Response) => {
    Object.assign(globalThis, { WebSocket: Socket, fetch: async () => answer() });
    sockets = [];
    localStorage.setItem(draftKey("s1"), "half a thought");
    const live = new LiveSession("s1");
    live.message("go on", "queue");
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
    sockets[0]!.onclose?.({ code: 1006 });
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
    const { phase } = live.state.value.connection;
    live.close();
    return [phase, localStorage.getItem(draftKey("s1")), storedRequests("s1").length];
  };
  const foreign = ["<html>404 page not found</html>", '{"error":"not found"}', '{"error":{"message":"no upstream"}}', '{"error":{"code":"no_route","message":"x"}}'];
  for (const body of foreign) {
    assert.deepEqual(await isAnswered(() => new Response(body, { status: 404 })), ["lost", "half a thought", 1], body);
    for (const { id } of storedRequests("s1")) localStorage.removeItem(`greenroom.unsent.s1.${id}`);
  }
  const own = '{"error":{"code":"not_found","message":"no session `s1`"}}';
  assert.deepEqual(await isAnswered(() => new Response(own, { status: 404 })), ["refused", null, 0]);
});

test("session socket waits only briefly for its newest events", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  let sockets = 0;
  class Socket {
    constructor() {
      sockets += 1;
    }
    close() {}
  }
  const hangs = (_: string, { signal }: RequestInit) =>
    new Promise((_, reject) => signal!.addEventListener("abort", () => reject(signal!.reason)));
  Object.assign(globalThis, { WebSocket: Socket, fetch: hangs });
  const live = new LiveSession("s1");
  context.mock.timers.tick(2000);
  await new Promise(setImmediate);
  assert.equal(sockets, 1);
  live.close();
});
