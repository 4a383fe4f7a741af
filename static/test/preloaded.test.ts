import assert from "node:assert/strict";
import { test } from "node:test";
import "./testWindow";

const event = (seq: number) => ({ seq });

test("preloaded events are used once and only by their session", async () => {
  const given = { session: { id: "a" }, events: [event(7)] };
  document.body.innerHTML = `<script id="given" type="application/json">${JSON.stringify(given)}</script>`;
  const asked: string[] = [];
  globalThis.fetch = ((address: string) => {
    asked.push(address);
    return Promise.resolve(new Response(JSON.stringify({ items: [event(9)] })));
  }) as typeof fetch;
  const { takeNewestEvents } = await import("../src/wire/preloaded");
  assert.deepEqual(await takeNewestEvents("b"), [event(9)]);
  assert.deepEqual(takeNewestEvents("a"), [event(7)], "available at once");
  assert.deepEqual(await takeNewestEvents("a"), [event(9)]);
  assert.deepEqual(asked, ["/api/sessions/b/events?last=60", "/api/sessions/a/events?last=60"]);
});
