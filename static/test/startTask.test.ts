import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { startWith, type StartAttempt } from "../src/state/startTask";
import { attemptJson, parseAttempt } from "../src/state/taskDraft";

/** Answers each upload by its address. */
function fakeUploads(refuses: (address: string) => boolean): string[] {
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

test("retry after a failed upload continues", async () => {
  const asked: { path: string; key: string | null; body: unknown }[] = [];
  globalThis.fetch = (async (address: string, { method, headers, body }: RequestInit) => {
    if (method === "POST") asked.push({ path: address, key: new Headers(headers).get("idempotency-key"), body: JSON.parse(String(body)) });
    return new Response(JSON.stringify({ id: "s1", items: [], total: 0 }));
  }) as typeof fetch;
  const files = [new File(["a"], "a.txt"), new File(["b"], "b.txt")];
  const attempt: { current: StartAttempt | null } = { current: null };
  let full = true;
  const sent = fakeUploads((address) => full && address.endsWith("b.txt"));
  await assert.rejects(startWith(attempt, { task: "look" }, files), /413/);
  full = false;
  assert.equal(await startWith(attempt, { task: "look" }, files), "s1");
  assert.deepEqual(sent.map((address) => address.split("/").at(-1)), ["a.txt", "b.txt", "b.txt"]);
  assert.deepEqual(asked.map(({ path }) => path), ["/api/sessions", "/api/sessions", "/api/sessions/s1/messages"]);
  assert.equal(asked[0]?.key, asked[1]?.key);
  assert.deepEqual(asked[2]?.body, { content: "look", attachments: ["uploads/a.txt", "uploads/b.txt"] });
});

test("task edited after a failed upload goes to the existing session", async () => {
  const asked: { path: string; key: string | null; body: { content?: string } }[] = [];
  globalThis.fetch = (async (address: string, { method, headers, body }: RequestInit) => {
    if (method === "POST") asked.push({ path: address, key: new Headers(headers).get("idempotency-key"), body: JSON.parse(String(body)) });
    if (address.endsWith("/messages") && asked.filter(({ path }) => path === address).length === 1) throw new Error("no answer");
    return new Response(JSON.stringify({ id: "s1", items: [], total: 0 }));
  }) as typeof fetch;
  fakeUploads(() => false);
  const files = [new File(["a"], "a.txt")];
  const attempt: { current: StartAttempt | null } = { current: null };
  for (const task of ["look", "look again"]) {
    const begun = startWith(attempt, { model: "m", task }, files);
    await (task === "look" ? assert.rejects(begun, /no reply from the server/) : begun);
  }
  const before = asked.length;
  await startWith(attempt, { model: "m", task: "without" }, []);
  assert.deepEqual(asked.slice(before).map(({ key }) => key === asked[0]?.key), [true, false]);
  const [created, first, again, second] = asked;
  assert.equal(created?.key, again?.key);
  assert.deepEqual([first?.body.content, second?.body.content], ["look", "look again"]);
  assert.notEqual(first?.key, second?.key);
});

test("budget is sent as typed and an invalid one is rejected first", async () => {
  const bodies: { budget_usd?: number }[] = [];
  globalThis.fetch = (async (_: string, { method, body }: RequestInit) => {
    if (method === "POST") bodies.push(JSON.parse(String(body)));
    return new Response(JSON.stringify({ id: "s1", items: [], total: 0 }));
  }) as typeof fetch;
  const start = (budget?: string) => startWith({ current: null }, { task: "look", budget }, []);
  for (const budget of ["0.05", " 2 ", "", undefined]) await start(budget);
  assert.deepEqual(bodies.map(({ budget_usd }) => budget_usd), [0.05, 2, undefined, undefined]);
  for (const budget of ["0", "-1", "0,05", "Infinity"]) await assert.rejects(start(budget), /must be above zero/, budget);
  assert.equal(bodies.length, 4);
});

/**
 * Simulates a server that keeps sessions by key, files and tasks. `end` and `purge` act as another
 * client.
 */
function fakeServer() {
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
  class ServerUploadRequest {
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
  Object.assign(globalThis, { XMLHttpRequest: ServerUploadRequest });
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

/** Returns an attempt with uploaded files and an unanswered message. */
async function uploadedAttempt(there: ReturnType<typeof fakeServer>): Promise<{ current: StartAttempt | null }> {
  const attempt: { current: StartAttempt | null } = { current: null };
  there.beforeMessage = () => {
    throw new Error("no answer");
  };
  await assert.rejects(startWith(attempt, { task: "look" }, FILES), /no reply from the server/);
  there.beforeMessage = () => {};
  return attempt;
}

for (const loss of ["end", "purge"] as const) {
  test(`session lost before its task is replaced with all files (${loss})`, async () => {
    const there = fakeServer();
    const attempt: { current: StartAttempt | null } = { current: null };
    // Lost just before the message.
    there.beforeMessage = (id) => id === "s1" && there.held.has(id) && there[loss](id);
    assert.equal(await startWith(attempt, { task: "look" }, FILES), "s2");
    assert.deepEqual([there.held.get("s2")?.files, there.given], [NAMES, [{ session: "s2", content: "look", attachments: PATHS }]]);

    // Lost between two attempts.
    const later = fakeServer();
    const again = await uploadedAttempt(later);
    later[loss]("s1");
    assert.equal(await startWith(again, { task: "look" }, FILES), "s2");
    assert.deepEqual([later.held.get("s2")?.files, later.given], [NAMES, [{ session: "s2", content: "look", attachments: PATHS }]]);
  });

  test(`files uploaded by an earlier page to a lost session are missing (${loss})`, async () => {
    const there = fakeServer();
    const before = await uploadedAttempt(there);
    there[loss]("s1");
    const after = { current: parseAttempt(attemptJson(before.current!), "look")!.attempt as StartAttempt | null };
    await assert.rejects(startWith(after, { task: "look" }, []), /^Error: `a.txt` and `b.txt` are missing: their session is gone. Attach them again/);
    assert.deepEqual(there.given, [], "no session starts without the files");
    assert.equal(await startWith(after, { task: "look" }, FILES), "s2");
    assert.deepEqual(there.given, [{ session: "s2", content: "look", attachments: PATHS }]);
  });
}

test("lost sandbox does not count as a lost session", async () => {
  const there = fakeServer();
  const attempt: { current: StartAttempt | null } = { current: null };
  there.sandboxIsGone = true;
  await assert.rejects(startWith(attempt, { task: "look" }, FILES), /not_found!/);
  there.sandboxIsGone = false;
  assert.equal(await startWith(attempt, { task: "look" }, FILES), "s1");
  assert.equal(there.made, 1);
});

test("files uploaded by an earlier page under other options are missing until attached again", async () => {
  const there = fakeServer();
  const before = await uploadedAttempt(there);
  const after = () => ({ current: parseAttempt(attemptJson(before.current!), "look")!.attempt as StartAttempt | null });
  const missing = after();
  await assert.rejects(startWith(missing, { task: "look", model: "m" }, []), /`a.txt` and `b.txt` are missing/);
  await assert.rejects(startWith(after(), { task: "look", model: "m" }, FILES.slice(1)), /`a.txt` is missing/);
  assert.deepEqual([there.made, there.given], [1, []], "no session starts without the files");
  assert.equal(await startWith(missing, { task: "look", model: "m" }, []), "s2", "a second start succeeds");
  assert.equal(await startWith(after(), { task: "look", model: "m" }, FILES), "s3");
  assert.deepEqual(there.given, [{ session: "s3", content: "look", attachments: PATHS }]);
});
