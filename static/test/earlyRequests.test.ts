import assert from "node:assert/strict";
import { test } from "node:test";
import "./testWindow";

const event = (seq: number) => ({ seq });

test("the earliest script requests a session once, with the secret, and only its page takes the answer", async () => {
  history.replaceState(null, "", "/sessions/a");
  document.documentElement.dataset.server = "ab12";
  localStorage.setItem("greenroom-secret-ab12", "1.2");
  const asked: [string, unknown][] = [];
  globalThis.fetch = ((address: string, { headers }: RequestInit) => {
    asked.push([address, headers]);
    return Promise.resolve(new Response(JSON.stringify({ items: [event(asked.length)] })));
  }) as typeof fetch;
  const { takeNewestEvents, earlySession } = await import("../src/wire/earlyRequests");
  const withSecret = { "X-Greenroom-Secret": "1.2" };
  assert.deepEqual(asked, [
    ["/api/sessions/a", withSecret],
    ["/api/sessions/a/events?last=60", withSecret],
  ]);
  assert.equal(earlySession?.id, "a");
  assert.deepEqual(await takeNewestEvents("b"), [event(3)]);
  assert.deepEqual(await takeNewestEvents("a"), [event(2)], "requested before");
  assert.deepEqual(await takeNewestEvents("a"), [event(4)], "requested anew, because the first answer ages");
});
