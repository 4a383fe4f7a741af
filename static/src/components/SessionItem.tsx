// List entry of a session: title and time, then agent, model and cost.

import { now } from "../clock";
import { costNote, costSoFar, relativeTime } from "../format";
import { currentState, isOnScreen } from "../state/currentSession";
import { costOfSession } from "../state/screenState";
import type { Session } from "../wire/frame";
import { SessionMenu } from "./SessionMenu";
import { StateDot } from "./StateDot";
import { notableAgent } from "../state/serverOptions";

export function SessionItem({ session, current }: { session: Session; current: boolean }) {
  const title = session.title || "Untitled";
  const cost = costOfSession(session.usage);
  const spent = costSoFar(cost);
  const state = (isOnScreen(session.id) && currentState.value) || session.state;
  const made = [notableAgent(session.agent), session.model].filter(Boolean).join(" · ");
  const waits = state === "awaiting_confirmation";
  return (
    <li class={current ? "session-item current" : "session-item"}>
      <a href={`/sessions/${session.id}`} aria-current={current ? "page" : undefined} title={[title, made, spent, costNote(cost)].filter(Boolean).join("\n")}>
        <StateDot state={state} />
        <span class="session-title" dir="auto">{title}</span>
        <time>{relativeTime(session.updated_at, now.value)}</time>
        {waits && <span class="session-waits">waits for you</span>}
        <span class="session-facts">
          <span class="session-made">{made}</span>
          {spent && <span>{spent}</span>}
        </span>
      </a>
      <SessionMenu session={session} />
    </li>
  );
}
