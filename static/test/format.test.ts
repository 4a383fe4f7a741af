import assert from "node:assert/strict";
import { test } from "node:test";
import { plainOutput } from "../src/escapes";
import { bytes, cost, duration, elapsed, latencyText, plural, relativeTime, tokens } from "../src/format";
import { actorTree } from "../src/state/actorTree";

test("durations under a second are empty, latencies are not", () => {
  assert.deepEqual([0, 12, 999, 1234, 12_345, 75_000, 3_725_000].map(duration), [
    "", "", "", "1.2 s", "12 s", "1 min 15 s", "1 h 2 min",
  ]);
  assert.deepEqual([-5, 0, 999, 1999, 12_999, 61_000].map(elapsed), ["", "", "", "1 s", "12 s", "1 min 1 s"]);
  assert.deepEqual([0, 12, 999, 1234].map(latencyText), ["< 1 ms", "12 ms", "999 ms", "1.2 s"]);
});

test("costs, tokens and sizes", () => {
  assert.deepEqual([null, undefined, 0, 0.004, 0.01, 1.239].map(cost), ["", "", "$0", "<$0.01", "$0.01", "$1.24"]);
  assert.deepEqual([0, 999, 1000, 9949, 9950, 42_400, 999_499, 1_250_000].map(tokens), [
    "0", "999", "1.0k", "9.9k", "10k", "42k", "999k", "1.3M",
  ]);
  assert.deepEqual([12, 2048, 3_145_728].map(bytes), ["12 B", "2.0 KiB", "3.0 MiB"]);
  assert.deepEqual([plural(1, "event"), plural(37, "event"), plural(1200, "event")], ["1 event", "37 events", "1,200 events"]);
});

test("relative times", () => {
  const now = Date.parse("2026-01-08T12:00:00.000Z");
  const ago = (seconds: number) => relativeTime(new Date(now - seconds * 1000).toISOString(), now);
  assert.deepEqual([-30, 5, 61, 7200, 200_000].map(ago), ["now", "now", "1 min", "2 h", "2 d"]);
  assert.equal(relativeTime("nonsense", now), "");
});

test("terminal output as plain text", () => {
  const check = (raw: string, expected: string) => assert.equal(plainOutput(raw), expected);
  check("\x1b[1;32mok\x1b[0m\n", "ok\n");
  check("\x1b]0;title\x07text", "text");
  check("\x1b]52;c;aGk=\x1b\\text", "text");
  for (const begin of ["\x1b]0;", "\x1bP", "\x1bX", "\x1b^", "\x1b_", "\x9d", "\x90", "\x9f"]) {
    check(`a\n${begin}hidden\nb\nc`, "a\n\nb\nc");
    check(`${begin}hidden\nb\x07\nc`, "\nb\nc");
  }
  for (const begin of ["\x1b", "\x1b[", "\x9b"]) check(`${begin}\nb\nc`, "\nb\nc");
  check("a\r\nb\r\n", "a\nb\n");
  check("10%\r50%\r100%\ndone", "100%\ndone");
  check("last line\r", "last line\r");
});

test("actors as a tree", () => {
  const at = "2026-01-01T00:00:00.000Z";
  const actor = (kind: string, id: string, session?: string) => ({ kind, id, session, since: at, last_active: at, handled: 1 });
  const tree = actorTree([
    actor("frontend_socket", "f1", "s1"),
    actor("sweeper", "w"),
    actor("session", "s1", "s1"),
    actor("agent_link", "orphan", "gone"),
    actor("directory", "d"),
    actor("session", "s2"),
    actor("agent_link", "l2", "s2"),
  ]);
  assert.deepEqual(
    tree.map(({ actor: { id }, depth }) => `${depth} ${id}`),
    ["0 d", "1 s1", "2 f1", "1 s2", "2 l2", "0 orphan", "0 w"],
  );
});
