// Groups of the session list.

import assert from "node:assert/strict";
import { test } from "node:test";
import { dayStart, groupSessions } from "../src/state/sessionGroups";
import type { Session } from "../src/wire/frame";

const NOW = new Date(2026, 2, 31, 0, 30).getTime();

/** Returns the groups of sessions with these local times. */
function groups(...times: [number, number, number, number?][]): string[] {
  const sessions = times.map(([year, month, day, hour = 12], n) => ({ id: String(n), updated_at: new Date(year, month, day, hour).toISOString() }) as Session);
  return groupSessions(sessions, NOW).map(({ label, items }) => `${label}: ${items.map(({ session }) => session.id).join(" ")}`);
}

test("sessions are grouped by calendar day, then by month", () => {
  assert.deepEqual(groups([2026, 2, 31, 0], [2026, 2, 30, 23], [2026, 2, 30, 0], [2026, 2, 29, 23]), ["Today: 0", "Yesterday: 1 2", "Previous 7 days: 3"]);
  assert.deepEqual(groups([2026, 2, 24, 0], [2026, 2, 23, 23], [2026, 2, 1, 0]), ["Previous 7 days: 0", "Previous 30 days: 1 2"]);
  assert.deepEqual(groups([2026, 1, 28, 23], [2026, 1, 1], [2025, 11, 31], [2025, 1, 1]), ["February 2026: 0 1", "December 2025: 2", "February 2025: 3"]);
});

test("groups are sorted by activity, and a clock ahead counts as today", () => {
  assert.deepEqual(groups([2026, 1, 1], [2026, 2, 31, 0], [2027, 0, 1], [2026, 1, 2]), ["Today: 2 1", "February 2026: 3 0"]);
  assert.deepEqual(groups(), []);
});

test("day before a change of the clocks starts at midnight", () => {
  // In zones with summer time, one of these days has 23 hours and another has 25.
  for (let days = 0; days < 366; days += 1) {
    const start = new Date(dayStart(NOW, days));
    assert.deepEqual([start.getHours(), start.getMinutes()], [0, 0], start.toString());
  }
});

test("session without a valid time is listed", () => {
  const odd = [{ id: "a", updated_at: "nonsense" }] as Session[];
  assert.deepEqual(groupSessions(odd, NOW).map(({ label }) => label), ["Unknown time"]);
});
