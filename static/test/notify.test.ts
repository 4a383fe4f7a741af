import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { newsOf, stateBefore } from "../src/state/notify";
import { parseRoute } from "../src/route";

test("what is worth a notification", () => {
  assert.equal(newsOf("running", "idle"), "done");
  assert.equal(newsOf("running", "awaiting_confirmation"), "waits");
  assert.equal(newsOf("idle", "failed"), "failed");
  assert.equal(newsOf("interrupting", "idle"), null, "the person stopped it and knows");
  assert.equal(newsOf("running", "paused"), null);
  assert.equal(newsOf(undefined, "awaiting_confirmation"), null, "the page has only just opened");
  assert.equal(newsOf("idle", "idle"), null);
});

test("a session that was started since is told of, one that was only not seen before is not", () => {
  const known = new Map([["01B", "running" as const]]);
  assert.equal(stateBefore("01B", known, "01B"), "running");
  assert.equal(stateBefore("01C", known, "01B"), "starting");
  assert.equal(stateBefore("01A", known, "01B"), undefined, "further down the list");
  assert.equal(stateBefore("01C", known, undefined), undefined, "there was no list yet");
  assert.equal(newsOf(stateBefore("01C", known, "01B"), "awaiting_confirmation"), "waits");
});

test("addresses", () => {
  const check = (path: string, search: string, expected: object) => assert.deepEqual(parseRoute(path, search), expected);
  check("/", "", { page: "home" });
  check("/sessions", "", { page: "home" });
  check("/sessions/01J", "", { page: "session", id: "01J" });
  check("/sessions/01J/more", "", { page: "unknown" });
  check("/admin", "", { page: "admin" });
  check("/sessions", "replay=/api/x", { page: "recording", file: "/api/x" });
  check("/sessions", "replay", { page: "recording", file: "" });
});
