// Search through what was said, in the sidebar.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test, type TestContext } from "node:test";
import { render } from "preact";
import { ConversationResults } from "../src/components/ConversationResults";
import { conversationSearch } from "../src/state/conversationSearch";
import { press, root, settled, renderText } from "./testSession";

interface Asked {
  query: URLSearchParams;
  signal: AbortSignal;
  answer: (page: object, status?: number) => void;
  fail: () => void;
}

let asked: Asked[] = [];

beforeEach(() => {
  asked = [];
  globalThis.fetch = ((address: string, { signal }: RequestInit) =>
    new Promise((resolve, reject) => {
      signal!.addEventListener("abort", () => reject(signal!.reason as Error));
      asked.push({
        query: new URL(address, "http://127.0.0.1").searchParams,
        signal: signal!,
        answer: (page, status = 200) => resolve(new Response(JSON.stringify({ next_cursor: null, unreadable: 0, ...page }), { status })),
        fail: () => reject(new TypeError("network")),
      });
    })) as typeof fetch;
});
afterEach(() => {
  render(null, root);
  conversationSearch.value = null;
});

const hit = (seq: number, more = {}) => ({
  session: "s1",
  title: "Bread",
  archived: false,
  seq,
  at: "2026-01-01T00:00:00.000Z",
  source: "agent",
  kind: "message",
  snippet: "Fold the dough",
  matches: [[9, 14]],
  ...more,
});

/** Waits until this many requests were sent. */
async function askedFor(count: number): Promise<Asked> {
  for (let turn = 0; asked.length < count && turn < 100; turn += 1) await settled();
  assert.equal(asked.length, count);
  return asked[count - 1]!;
}
const status = () => root.querySelector("[role=status]")?.textContent;
const links = () => [...root.querySelectorAll("a")].map((link) => link.getAttribute("href"));

test("results lead to their events and mark the matches", async () => {
  await renderText(<ConversationResults text=" dough " />);
  assert.equal(status(), "Searching…");
  const first = await askedFor(1);
  assert.deepEqual([...first.query], [["q", "dough"]]);
  const command = hit(3, { kind: "run", snippet: "🦀 a <b>dough</b> dough", matches: [[8, 13], [18, 23]], archived: true });
  first.answer({ items: [hit(7), command] });
  await settled();
  assert.deepEqual(links(), ["/sessions/s1?at=7", "/sessions/s1?at=3"]);
  assert.deepEqual([...root.querySelectorAll("mark")].map((mark) => mark.textContent), ["dough", "dough", "dough"]);
  assert.deepEqual([...root.querySelectorAll(".passage-text")].map((one) => one.textContent), ["Fold the dough", "$ 🦀 a <b>dough</b> dough"]);
  assert.equal(root.querySelector("b"), null, "a snippet is text");
  assert.equal(root.querySelectorAll(".passage-archived").length, 1);
  assert.equal(status(), "2 results.");
});

test("search reads on until something is found, and more on request", async () => {
  await renderText(<ConversationResults text="dough" />);
  (await askedFor(1)).answer({ items: [], next_cursor: "c1" });
  const second = await askedFor(2);
  assert.equal(second.query.get("cursor"), "c1");
  second.answer({ items: [hit(7)], next_cursor: "c2", unreadable: 1 });
  await settled();
  assert.equal(status(), "1 result so far. 1 session could not be read.");
  assert.equal(asked.length, 2, "it waits for the user");
  press("More results");
  const third = await askedFor(3);
  assert.equal(third.query.get("cursor"), "c2");
  third.answer({ items: [] });
  await settled();
  assert.equal(status(), "1 result. 1 session could not be read.");
  assert.equal(root.querySelector("button"), null);
});

test("newer text aborts the search in flight and an older answer is ignored", async () => {
  await renderText(<ConversationResults text="do" />);
  const stale = await askedFor(1);
  await renderText(<ConversationResults text="dough" />);
  assert.ok(stale.signal.aborted);
  stale.answer({ items: [hit(1)] });
  const next = await askedFor(2);
  assert.equal(next.query.get("q"), "dough");
  next.answer({ items: [hit(2)] });
  await settled();
  assert.deepEqual(links(), ["/sessions/s1?at=2"]);
});

test("typing is not searched letter by letter", async () => {
  for (const text of ["d", "do", "dou", "doug", "dough"]) render(<ConversationResults text={text} />, root);
  await askedFor(1);
  assert.deepEqual(asked.map(({ query }) => query.get("q")), ["dough"]);
});

test("too short text is not searched, and a long one is cut", async () => {
  await renderText(<ConversationResults text="d" />);
  assert.equal(root.textContent, "");
  await renderText(<ConversationResults text={`a\tb\u0000c ${"x".repeat(300)}`} />);
  const sent = (await askedFor(1)).query.get("q")!;
  assert.ok(sent.startsWith("a b c xxx") && sent.length === 200, sent);
  await renderText(<ConversationResults text="語" />);
  assert.equal((await askedFor(2)).query.get("q"), "語");
});

test("failed search says why and continues where it was", async () => {
  await renderText(<ConversationResults text="dough" />);
  (await askedFor(1)).answer({ items: [hit(7)], next_cursor: "c1" });
  await settled();
  press("More results");
  (await askedFor(2)).fail();
  await settled();
  assert.match(root.querySelector("[role=alert]")!.textContent!, /no reply from the server/);
  assert.deepEqual(links(), ["/sessions/s1?at=7"], "what was found stays");
  press("Try again");
  const again = await askedFor(3);
  assert.equal(again.query.get("cursor"), "c1");
  again.answer({ items: [] });
  await settled();
  assert.equal(root.querySelector("[role=alert]"), null);
  assert.equal(status(), "1 result.");
});

test("search waits while the server is busy with others", async (context: TestContext) => {
  const busy = { error: { code: "overloaded", message: "two other searches run; try again in a second" } };
  await renderText(<ConversationResults text="dough" />);
  const first = await askedFor(1);
  context.mock.timers.enable({ apis: ["setTimeout"] });
  first.answer(busy, 429);
  const turns = async () => {
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
  };
  for (let retry = 0; retry < 5; retry += 1) {
    await turns();
    assert.equal(status(), "Searching…");
    context.mock.timers.tick(1000);
    await turns();
    assert.equal(asked.length, retry + 2);
    asked.at(-1)!.answer(busy, 429);
  }
  await turns();
  context.mock.timers.reset();
  await settled();
  assert.match(root.querySelector("[role=alert]")!.textContent!, /two other searches run/);
});

test("nothing found is said once all was searched", async () => {
  await renderText(<ConversationResults text="yeast" />);
  (await askedFor(1)).answer({ items: [] });
  await settled();
  assert.equal(status(), "Nothing said matches “yeast”.");
});
