import assert from "node:assert/strict";
import { test } from "node:test";
import "./dom";

const event = (seq: number) => ({ seq });

test("what the page came with is taken once, by the session that it is of", async () => {
  const given = { session: { id: "a" }, events: [event(7)] };
  document.body.innerHTML = `<script id="given" type="application/json">${JSON.stringify(given)}</script>`;
  const asked: string[] = [];
  globalThis.fetch = ((address: string) => {
    asked.push(address);
    return Promise.resolve(new Response(JSON.stringify({ items: [event(9)] })));
  }) as typeof fetch;
  const { takeNewest } = await import("../src/wire/given");
  assert.deepEqual(await takeNewest("b"), [event(9)]);
  assert.deepEqual(takeNewest("a"), [event(7)], "at once, not in a while");
  assert.deepEqual(await takeNewest("a"), [event(9)]);
  assert.deepEqual(asked, ["/api/sessions/b/events?last=60", "/api/sessions/a/events?last=60"]);
});
