// Sessions of the list, by the day of their last activity. Forks stand below the forked session.

import { computed } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { now } from "../clock";
import { SessionItem } from "../components/SessionItem";
import { dayStart, groupSessions } from "../state/sessionGroups";
import type { Session } from "../wire/frame";
import type { SessionTree } from "./sessionTree";

interface SessionGroupsProps {
  sessions: readonly Session[];
  /** Id of the session on the screen. */
  current: string | null;
}

/** Start of the current day. Changes once a day, so the groups are not made anew each second. */
const today = computed(() => dayStart(now.value));

export function SessionGroups({ sessions, current }: SessionGroupsProps) {
  const day = today.value;
  const groups = useMemo(() => groupSessions(sessions, day), [sessions, day]);
  return (
    <>
      {groups.map(({ label, items }) => (
        <section key={label} class="list-group" aria-label={label}>
          <h2>{label}</h2>
          <ul>
            {items.map((tree) => (
              <Branch key={tree.session.id} tree={tree} current={current} />
            ))}
          </ul>
        </section>
      ))}
    </>
  );
}

/** Nested lists tell a screen reader the level. */
function Branch({ tree: { session, forks }, current }: { tree: SessionTree; current: string | null }) {
  return (
    <li>
      <SessionItem session={session} current={session.id === current} />
      {forks.length > 0 && (
        <ul class="session-forks" aria-label={`Forks of “${session.title || "Untitled"}”`}>
          {forks.map((fork) => (
            <Branch key={fork.session.id} tree={fork} current={current} />
          ))}
        </ul>
      )}
    </li>
  );
}
