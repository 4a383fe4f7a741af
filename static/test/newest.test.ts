import assert from "node:assert/strict";
import { test } from "node:test";
import "./dom";
import { expectNewest, takeNewest } from "../src/wire/newest";

const event = (seq: number) => ({ seq });

/** A server that answers with these, in this order; `null` never comes. */
function serves(...answers: (object[] | null)[]): string[] {
  const asked: string[] = [];
  globalThis.fetch = ((address: string) => {
    asked.push(address);
    const items = answers.shift();
    return items ? Promise.resolve(new Response(JSON.stringify({ items }))) : new Promise(() => {});
  }) as typeof fetch;
  return asked;
}

test("what was expected and has come is there at once", async () => {
  const asked = serves([event(7)]);
  await expectNewest("a");
  assert.deepEqual(takeNewest("a"), [event(7)]);
  assert.equal(asked.length, 1);
});

test("a page does not wait for a slow server, and takes what comes later", async () => {
  let come = (_: Response) => {};
  globalThis.fetch = (() => new Promise((resolve) => (come = resolve))) as typeof fetch;
  await expectNewest("a");
  const late = takeNewest("a");
  assert.ok(late instanceof Promise);
  come(new Response(JSON.stringify({ items: [event(1)] })));
  assert.deepEqual(await late, [event(1)]);
});

test("another session's events are asked for anew, and what was expected is taken once", async () => {
  const asked = serves([event(1)], [event(2)], [event(3)]);
  await expectNewest("a");
  assert.deepEqual(await takeNewest("b"), [event(2)]);
  assert.deepEqual(await takeNewest("a"), [event(3)]);
  assert.equal(asked.filter((address) => address.includes("/a/")).length, 2);
});

test("an answer that failed is told to whoever takes it", async () => {
  globalThis.fetch = (() => Promise.reject(new TypeError("away"))) as typeof fetch;
  await expectNewest("a");
  await assert.rejects(async () => await takeNewest("a"), /does not answer/);
});
