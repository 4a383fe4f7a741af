import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { learn, listError, moment, newest, refreshSessions, search, sessionOf, sessions, showArchived, watchSessions } from "../src/state/list";
import type { Session } from "../src/wire/frame";

/** A server with these sessions; returns what it is asked. */
function serves(titles: readonly string[]): string[] {
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

test("who tells what happens knows of all sessions, whatever the list shows", async () => {
  const asked = serves(["alpha", "beta"]);
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

test("a hidden page looks seldom, and looks", async (context) => {
  context.mock.timers.enable({ apis: ["setInterval", "Date"], now: 1_000_000 });
  context.mock.getter(document, "hidden", () => true);
  const asked = serves([]);
  showArchived.value = false;
  const stop = watchSessions();
  for (let second = 0; second < 60; second += 1) {
    context.mock.timers.tick(1000);
    await new Promise(setImmediate);
  }
  stop();
  assert.ok(asked.length >= 3 && asked.length <= 5, `${asked.length} times in a minute`);
});

test("one question at a time is under way, and a newer one takes its place", async (context) => {
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
  assert.equal(asked.length, 1, "a poll waits for the one before");
  showArchived.value = true;
  const filtered = refreshSessions();
  assert.deepEqual(asked.map(({ signal }) => signal.aborted), [true, false, false]);
  asked[1]!.answer("archived");
  asked[2]!.answer("new");
  await filtered;
  assert.deepEqual([ids(sessions), ids(newest), listError.value], [["archived"], ["new"], null]);
  context.mock.timers.tick(4000);
  assert.equal(asked.length, 5, "and then polls go on");
  stop();
  showArchived.value = false;
});

test("an answer does not bring back a state that was left behind", async () => {
  const told = (state: Session["state"], last_seq: number, title = "t") => ({ id: "s", state, last_seq, title }) as Session;
  /** The server's answer, and what is told meanwhile: it was asked for before that. */
  const answers = (session: Session, meanwhile: Session[] = []) => {
    globalThis.fetch = async () => new Response(JSON.stringify({ items: [session], next_cursor: null, total: 1 }));
    const answered = refreshSessions();
    if (meanwhile.length > 0) learn(meanwhile);
    return answered;
  };
  const shown = () => [sessions, newest].map((list) => `${list.value?.[0]?.title} ${list.value?.[0]?.state}`);
  await answers(told("running", 5));
  await answers(told("running", 6, "renamed"), [told("idle", 7)]);
  assert.deepEqual(shown(), ["renamed idle", "renamed idle"]);
  await answers(told("running", 8), [told("idle", 7)]);
  assert.deepEqual(shown(), ["t running", "t running"]);
});

test("a server whose data were put back from a backup is believed", async () => {
  const told = (id: string, state: Session["state"], last_seq: number) => ({ id, state, last_seq, title: id }) as Session;
  globalThis.fetch = async () => new Response(JSON.stringify({ items: [told("b", "idle", 3)], next_cursor: null, total: 1 }));
  learn([told("b", "running", 9), told("unlisted", "running", 9)]);
  await refreshSessions();
  assert.equal(sessionOf("b")?.state, "idle");
  // Of what is not in the list, a socket that was opened since tells.
  const opened = moment();
  learn([told("unlisted", "idle", 3)], opened);
  assert.equal(sessionOf("unlisted")?.state, "idle");
  learn([told("unlisted", "running", 2)], opened);
  assert.equal(sessionOf("unlisted")?.state, "idle", "what it told before that is older");
});
