import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { mergeSessions, listError, mergeCount, newest, refreshSessions, search, sessionOf, sessions, showArchived, watchSessions } from "../src/state/sessionList";
import type { Session } from "../src/wire/frame";

/** Simulates a server with these sessions. Returns the requested addresses. */
function serveSessions(titles: readonly string[]): string[] {
  const asked: string[] = [];
  globalThis.fetch = (async (address: string) => {
    asked.push(address);
    const q = new URL(address, "http://127.0.0.1").searchParams.get("q") ?? "";
    const items = titles.filter((title) => title.includes(q)).map((id) => ({ id }));
    return new Response(JSON.stringify({ items, next_cursor: null, total: items.length }));
  }) as typeof fetch;
  return asked;
}

const ids = (list: typeof sessions) => list.value?.map(({ id }) => id);

test("newest sessions are independent of search and filter", async () => {
  const asked = serveSessions(["alpha", "beta"]);
  await refreshSessions();
  assert.deepEqual([ids(sessions), ids(newest), asked.length], [["alpha", "beta"], ["alpha", "beta"], 1]);
  search.value = "be";
  await refreshSessions();
  assert.deepEqual([ids(sessions), ids(newest), asked.length], [["beta"], ["alpha", "beta"], 3]);
  search.value = "";
  showArchived.value = true;
  await refreshSessions();
  assert.deepEqual(asked.slice(3).map((address) => address.includes("archived=true")), [true, false]);
});

test("hidden page refreshes less often", async (context) => {
  context.mock.timers.enable({ apis: ["setInterval", "Date"], now: 1_000_000 });
  context.mock.getter(document, "hidden", () => true);
  const asked = serveSessions([]);
  showArchived.value = false;
  const stop = watchSessions();
  for (let second = 0; second < 60; second += 1) {
    context.mock.timers.tick(1000);
    await new Promise(setImmediate);
  }
  stop();
  assert.ok(asked.length >= 3 && asked.length <= 5, `${asked.length} times in a minute`);
});

test("newer request aborts the one in flight", async (context) => {
  context.mock.timers.enable({ apis: ["setInterval"] });
  context.mock.getter(document, "hidden", () => false);
  search.value = "";
  showArchived.value = false;
  const asked: { signal: AbortSignal; answer: (...ids: string[]) => void }[] = [];
  globalThis.fetch = ((_: string, { signal }: RequestInit) =>
    new Promise((resolve, reject) => {
      signal!.addEventListener("abort", () => reject(signal!.reason));
      const answer = (...ids: string[]) => {
        const items = ids.map((id) => ({ id }));
        resolve(new Response(JSON.stringify({ items, next_cursor: null, total: items.length })));
      };
      asked.push({ signal: signal!, answer });
    })) as typeof fetch;
  const stop = watchSessions();
  context.mock.timers.tick(12_000);
  assert.equal(asked.length, 1, "a refresh waits for the previous one");
  showArchived.value = true;
  const filtered = refreshSessions();
  assert.deepEqual(asked.map(({ signal }) => signal.aborted), [true, false, false]);
  asked[1]!.answer("archived");
  asked[2]!.answer("new");
  await filtered;
  assert.deepEqual([ids(sessions), ids(newest), listError.value], [["archived"], ["new"], null]);
  context.mock.timers.tick(4000);
  assert.equal(asked.length, 5, "refreshes continue");
  stop();
  showArchived.value = false;
});

test("late answer does not restore an older state", async () => {
  const told = (state: Session["state"], last_seq: number, title = "t") => ({ id: "s", state, last_seq, title }) as Session;
  /** Applies a server answer that was requested before newer data arrived. */
  const answers = (session: Session, meanwhile: Session[] = []) => {
    globalThis.fetch = async () => new Response(JSON.stringify({ items: [session], next_cursor: null, total: 1 }));
    const answered = refreshSessions();
    if (meanwhile.length > 0) mergeSessions(meanwhile);
    return answered;
  };
  const shown = () => [sessions, newest].map((list) => `${list.value?.[0]?.title} ${list.value?.[0]?.state}`);
  await answers(told("running", 5));
  await answers(told("running", 6, "renamed"), [told("idle", 7)]);
  assert.deepEqual(shown(), ["renamed idle", "renamed idle"]);
  await answers(told("running", 8), [told("idle", 7)]);
  assert.deepEqual(shown(), ["t running", "t running"]);
});

test("older data after a server restore is accepted", async () => {
  const told = (id: string, state: Session["state"], last_seq: number) => ({ id, state, last_seq, title: id }) as Session;
  globalThis.fetch = async () => new Response(JSON.stringify({ items: [told("b", "idle", 3)], next_cursor: null, total: 1 }));
  mergeSessions([told("b", "running", 9), told("unlisted", "running", 9)]);
  await refreshSessions();
  assert.equal(sessionOf("b")?.state, "idle");
  // A socket opened later reports sessions outside of the list.
  const opened = mergeCount();
  mergeSessions([told("unlisted", "idle", 3)], opened);
  assert.equal(sessionOf("unlisted")?.state, "idle");
  mergeSessions([told("unlisted", "running", 2)], opened);
  assert.equal(sessionOf("unlisted")?.state, "idle", "the earlier list is older");
});
