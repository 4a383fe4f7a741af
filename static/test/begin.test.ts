import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { beginWith, type Attempt } from "../src/state/begin";

/** Answers each upload with what `refuses` says of its address. */
function uploads(refuses: (address: string) => boolean): string[] {
  const sent: string[] = [];
  class FakeRequest {
    upload = {};
    status = 0;
    responseText = "";
    onload = () => {};
    private address = "";
    open(_: string, address: string) {
      this.address = address;
    }
    setRequestHeader() {}
    send() {
      sent.push(this.address);
      this.status = refuses(this.address) ? 413 : 201;
      setTimeout(this.onload);
    }
  }
  Object.assign(globalThis, { XMLHttpRequest: FakeRequest });
  return sent;
}

test("after an upload that failed it goes on where it was", async () => {
  const asked: { path: string; key: string | null; body: unknown }[] = [];
  globalThis.fetch = (async (address: string, { method, headers, body }: RequestInit) => {
    if (method === "POST") asked.push({ path: address, key: new Headers(headers).get("idempotency-key"), body: JSON.parse(String(body)) });
    return new Response(JSON.stringify({ id: "s1", items: [], total: 0 }));
  }) as typeof fetch;
  const files = [new File(["a"], "a.txt"), new File(["b"], "b.txt")];
  const attempt: { current: Attempt | null } = { current: null };
  let full = true;
  const sent = uploads((address) => full && address.endsWith("b.txt"));
  await assert.rejects(beginWith(attempt, { task: "look" }, files), /413/);
  full = false;
  assert.equal(await beginWith(attempt, { task: "look" }, files), "s1");
  assert.deepEqual(sent.map((address) => address.split("/").at(-1)), ["a.txt", "b.txt", "b.txt"]);
  assert.deepEqual(asked.map(({ path }) => path), ["/api/sessions", "/api/sessions", "/api/sessions/s1/messages"]);
  assert.equal(asked[0]?.key, asked[1]?.key);
  assert.deepEqual(asked[2]?.body, { content: "look", attachments: ["uploads/a.txt", "uploads/b.txt"] });
});

test("a task that is edited after an upload that failed is given to the session that is there", async () => {
  const asked: { path: string; key: string | null; body: { content?: string } }[] = [];
  globalThis.fetch = (async (address: string, { method, headers, body }: RequestInit) => {
    if (method === "POST") asked.push({ path: address, key: new Headers(headers).get("idempotency-key"), body: JSON.parse(String(body)) });
    if (address.endsWith("/messages") && asked.filter(({ path }) => path === address).length === 1) throw new Error("no answer");
    return new Response(JSON.stringify({ id: "s1", items: [], total: 0 }));
  }) as typeof fetch;
  uploads(() => false);
  const files = [new File(["a"], "a.txt")];
  const attempt: { current: Attempt | null } = { current: null };
  for (const task of ["look", "look again"]) {
    const begun = beginWith(attempt, { model: "m", task }, files);
    await (task === "look" ? assert.rejects(begun, /does not answer/) : begun);
  }
  const before = asked.length;
  await beginWith(attempt, { model: "m", task: "without" }, []);
  assert.deepEqual(asked.slice(before).map(({ key }) => key === asked[0]?.key), [true, false]);
  const [created, first, again, second] = asked;
  assert.equal(created?.key, again?.key);
  assert.deepEqual([first?.body.content, second?.body.content], ["look", "look again"]);
  assert.notEqual(first?.key, second?.key);
});

test("a budget is sent as it was written, and what is none is said before anything begins", async () => {
  const bodies: { budget_usd?: number }[] = [];
  globalThis.fetch = (async (_: string, { method, body }: RequestInit) => {
    if (method === "POST") bodies.push(JSON.parse(String(body)));
    return new Response(JSON.stringify({ id: "s1", items: [], total: 0 }));
  }) as typeof fetch;
  const start = (budget?: string) => beginWith({ current: null }, { task: "look", budget }, []);
  for (const budget of ["0.05", " 2 ", "", undefined]) await start(budget);
  assert.deepEqual(bodies.map(({ budget_usd }) => budget_usd), [0.05, 2, undefined, undefined]);
  for (const budget of ["0", "-1", "0,05", "Infinity"]) await assert.rejects(start(budget), /no amount above zero/, budget);
  assert.equal(bodies.length, 4);
});
