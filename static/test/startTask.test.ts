import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { beginWith, type Attempt } from "../src/state/begin";
import { readAttempt } from "../src/state/task";

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

/**
 * A server that keeps what it was told: sessions by the keys that made them, the files that were brought to each, the tasks. `end`
 * and `purge` are what somebody does elsewhere.
 */
function server() {
  const keys = new Map<string, string>();
  const held = new Map<string, { state: string; files: string[] }>();
  const given: { session: string; content: string; attachments: string[] }[] = [];
  const all = { held, given, made: 0, sandboxIsGone: false, beforeMessage: (_: string) => {} };
  const no = (status: number, code: string) => new Response(JSON.stringify({ error: { code, message: `${code}!` } }), { status });
  const why = (id: string) => (held.has(id) ? (held.get(id)!.state === "ended" ? no(409, "ended") : null) : no(404, "not_found"));
  globalThis.fetch = (async (address: string, { method, headers, body }: RequestInit) => {
    const [, id = "", rest] = /^\/api\/sessions\/(\w+)(\/messages)?$/.exec(address) ?? [];
    if (method === "GET") return id && !held.has(id) ? no(404, "not_found") : new Response(JSON.stringify({ items: [], total: 0, id, ...held.get(id) }));
    if (rest) {
      all.beforeMessage(id);
      const refused = why(id);
      if (!refused) given.push({ session: id, ...JSON.parse(String(body)) });
      return refused ?? new Response("{}", { status: 202 });
    }
    const key = new Headers(headers).get("idempotency-key")!;
    if (!keys.has(key)) {
      keys.set(key, `s${(all.made += 1)}`);
      held.set(keys.get(key)!, { state: "idle", files: [] });
    }
    return new Response(JSON.stringify({ id: keys.get(key) }));
  }) as typeof fetch;
  class Request {
    upload = {};
    status = 0;
    responseText = "";
    onload = () => {};
    private address = "";
    open(_: string, address: string) {
      this.address = address;
    }
    setRequestHeader() {}
    async send() {
      const [, id = "", name = ""] = /sessions\/(\w+)\/files\/uploads\/(.+)$/.exec(this.address)!;
      const refused = all.sandboxIsGone ? no(404, "not_found") : why(id);
      if (!refused) held.get(id)!.files.push(name);
      this.status = refused?.status ?? 201;
      this.responseText = (await refused?.text()) ?? "";
      this.onload();
    }
  }
  Object.assign(globalThis, { XMLHttpRequest: Request });
  const end = (id: string) => void (held.get(id)!.state = "ended");
  const purge = (id: string) => {
    held.delete(id);
    for (const [key, made] of keys) if (made === id) keys.delete(key);
  };
  return Object.assign(all, { end, purge });
}

const FILES = [new File(["a"], "a.txt"), new File(["b"], "b.txt")];
const NAMES = FILES.map(({ name }) => name);
const PATHS = NAMES.map((name) => `uploads/${name}`);

/** An attempt whose files were brought, and whose message was not answered. */
async function halfBegun(there: ReturnType<typeof server>): Promise<{ current: Attempt | null }> {
  const attempt: { current: Attempt | null } = { current: null };
  there.beforeMessage = () => {
    throw new Error("no answer");
  };
  await assert.rejects(beginWith(attempt, { task: "look" }, FILES), /does not answer/);
  there.beforeMessage = () => {};
  return attempt;
}

for (const loss of ["end", "purge"] as const) {
  test(`where its session was lost before it had its task, another one is made, with all its files (${loss})`, async () => {
    const there = server();
    const attempt: { current: Attempt | null } = { current: null };
    // Just before the message, …
    there.beforeMessage = (id) => id === "s1" && there.held.has(id) && there[loss](id);
    assert.equal(await beginWith(attempt, { task: "look" }, FILES), "s2");
    assert.deepEqual([there.held.get("s2")?.files, there.given], [NAMES, [{ session: "s2", content: "look", attachments: PATHS }]]);

    // … and between two tries.
    const later = server();
    const again = await halfBegun(later);
    later[loss]("s1");
    assert.equal(await beginWith(again, { task: "look" }, FILES), "s2");
    assert.deepEqual([later.held.get("s2")?.files, later.given], [NAMES, [{ session: "s2", content: "look", attachments: PATHS }]]);
  });

  test(`files that a page before this one brought to a lost session are asked for by name (${loss})`, async () => {
    const there = server();
    const before = await halfBegun(there);
    there[loss]("s1");
    const after = { current: readAttempt(JSON.stringify(before.current), "look")!.attempt as Attempt | null };
    await assert.rejects(beginWith(after, { task: "look" }, []), /^Error: `a.txt` and `b.txt` are not here any more: the session that had them is gone. Attach them again/);
    assert.deepEqual(there.given, [], "nothing is begun without them");
    assert.equal(await beginWith(after, { task: "look" }, FILES), "s2");
    assert.deepEqual(there.given, [{ session: "s2", content: "look", attachments: PATHS }]);
  });
}

test("where its sandbox is gone the session is not: it is gone on with", async () => {
  const there = server();
  const attempt: { current: Attempt | null } = { current: null };
  there.sandboxIsGone = true;
  await assert.rejects(beginWith(attempt, { task: "look" }, FILES), /not_found!/);
  there.sandboxIsGone = false;
  assert.equal(await beginWith(attempt, { task: "look" }, FILES), "s1");
  assert.equal(there.made, 1);
});

test("what a page before this one brought to a session with other options is asked for, unless it is attached again", async () => {
  const there = server();
  const before = await halfBegun(there);
  const after = () => ({ current: readAttempt(JSON.stringify(before.current), "look")!.attempt as Attempt | null });
  const missing = after();
  await assert.rejects(beginWith(missing, { task: "look", model: "m" }, []), /`a.txt` and `b.txt` are not here any more/);
  await assert.rejects(beginWith(after(), { task: "look", model: "m" }, FILES.slice(1)), /`a.txt` is not here any more/);
  assert.deepEqual([there.made, there.given], [1, []], "nothing is begun without them");
  assert.equal(await beginWith(missing, { task: "look", model: "m" }, []), "s2", "asked once more it starts");
  assert.equal(await beginWith(after(), { task: "look", model: "m" }, FILES), "s3");
  assert.deepEqual(there.given, [{ session: "s3", content: "look", attachments: PATHS }]);
});
