import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseRoute } from "../src/route";

test("unknown address leads to the unknown page", () => {
  assert.deepEqual(parseRoute("/sessions/%zz"), { page: "unknown" });
  assert.deepEqual(parseRoute("/sessions/01J%20x"), { page: "session", id: "01J x" });
  assert.deepEqual(parseRoute("/sessions/a/b"), { page: "unknown" });
});
