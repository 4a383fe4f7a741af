import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { newest, refreshSessions, search, sessions, showArchived, watchSessions } from "../src/state/list";

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
  for (let second = 0; second < 60; second += 1) context.mock.timers.tick(1000);
  stop();
  assert.ok(asked.length >= 3 && asked.length <= 5, `${asked.length} times in a minute`);
});
