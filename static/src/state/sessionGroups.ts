// Groups of the session list, by last activity. Pure.

import { treesOf, type SessionTree } from "../fork/sessionTree";
import type { Session } from "../wire/frame";

/** Sessions of one period with their forks, newest first. */
export interface SessionGroup {
  label: string;
  items: SessionTree[];
}

/**
 * Groups trees of sessions by the local calendar day of their newest activity, newest group first.
 * `today`: any time of the current day, in milliseconds since the epoch.
 */
export function groupSessions(sessions: readonly Session[], today: number): SessionGroup[] {
  const groups = new Map<string, SessionTree[]>();
  const sorted = sessions.toSorted((a, b) => (a.updated_at < b.updated_at ? 1 : a.updated_at > b.updated_at ? -1 : 0));
  for (const { tree, newest } of treesOf(sorted)) {
    const label = periodOf(Date.parse(newest.updated_at), today);
    const group = groups.get(label);
    if (group) group.push(tree);
    else groups.set(label, [tree]);
  }
  return [...groups].map(([label, items]) => ({ label, items }));
}

/** Returns the start of a day in local time. */
export function dayStart(at: number, daysBefore = 0): number {
  const day = new Date(at);
  // By calendar, because a day has 23 or 25 hours when the clocks change.
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() - daysBefore).getTime();
}

function periodOf(at: number, today: number): string {
  if (Number.isNaN(at)) return "Unknown time";
  // A time ahead of this clock counts as today.
  if (at >= dayStart(today)) return "Today";
  if (at >= dayStart(today, 1)) return "Yesterday";
  if (at >= dayStart(today, 7)) return "Previous 7 days";
  if (at >= dayStart(today, 30)) return "Previous 30 days";
  return new Date(at).toLocaleDateString("en", { month: "long", year: "numeric" });
}
