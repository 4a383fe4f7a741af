// List entry of a session: title and time, then the newest thing that it did, and its cost.

import { now, serverNow } from "../clock";
import { costNote, costSoFar, relativeTime } from "../format";
import { currentStatus, isOnScreen } from "../state/currentSession";
import { costOfSession } from "../state/screenState";
import { listError } from "../state/sessionList";
import { statusOf } from "../state/sessionStatus";
import { notableAgent } from "../state/serverOptions";
import { isUnread } from "../state/unread";
import type { Session } from "../wire/frame";
import { SessionMenu } from "./SessionMenu";
import { StateDot } from "./StateDot";

export function SessionItem({ session, current }: { session: Session; current: boolean }) {
  const title = session.title || "Untitled";
  const cost = costOfSession(session.usage);
  const spent = costSoFar(cost);
  // The session's own socket is ahead of the list.
  const own = isOnScreen(session.id) ? currentStatus.value : null;
  const status = own && own.kind !== "unknown" ? own : statusOf(session, listError.value === null ? "server" : "away");
  const made = [notableAgent(session.agent), session.model].filter(Boolean).join(" · ");
  const unread = isUnread(session);
  const urgent = URGENT[status.kind];
  return (
    <div class={["session-item", current && "current", unread && "unread"].filter(Boolean).join(" ")}>
      <a href={`/sessions/${session.id}`} aria-current={current ? "page" : undefined} title={[title, made, spent, costNote(cost)].filter(Boolean).join("\n")}>
        <StateDot status={status} />
        <span class="session-title" dir="auto">{title}</span>
        <time>{relativeTime(session.updated_at, serverNow() ?? now.value)}</time>
        {unread && <span class="visually-hidden">unread</span>}
        <span class="session-facts">
          {urgent && <span class={`session-urgent ${status.kind}`}>{urgent}</span>}
          <span class="session-latest" dir="auto">{session.latest || made}</span>
          {spent && <span>{spent}</span>}
        </span>
      </a>
      <SessionMenu session={session} />
    </div>
  );
}

/** Words for the statuses that a list shows in words, too. */
const URGENT: Partial<Record<string, string>> = { waiting: "waits for you", turn_failed: "failed", failed: "failed" };
