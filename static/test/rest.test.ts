import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { getSession, RequestError } from "../src/wire/rest";

test("a connection that breaks within an answer is one like any other", async () => {
  const broken = new ReadableStream({ start: (stream) => stream.error(new TypeError("terminated")) });
  for (const answer of [async () => new Response(broken), () => Promise.reject(new TypeError("refused"))]) {
    globalThis.fetch = answer as typeof fetch;
    await assert.rejects(getSession("s1"), (error) => error instanceof RequestError && error.status === 0);
  }
});
