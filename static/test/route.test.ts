import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseRoute } from "../src/route";

test("unknown address leads to the unknown page", () => {
  assert.deepEqual(parseRoute("/sessions/%zz"), { page: "unknown" });
  assert.deepEqual(parseRoute("/sessions/01J%20x"), { page: "session", id: "01J x" });
  assert.deepEqual(parseRoute("/sessions/a/b"), { page: "unknown" });
});

test("address of a session may name an event", () => {
  assert.deepEqual(parseRoute("/sessions/a", "at=17"), { page: "session", id: "a", at: 17 });
  for (const search of ["", "at=", "at=0", "at=-1", "at=1.5", "at=x", "at=1e99", "at=99999999999999999999"]) {
    assert.deepEqual(parseRoute("/sessions/a", search), { page: "session", id: "a" }, search);
  }
});
