// One session in the list.

import { now } from "../clock";
import { cost, relativeTime } from "../format";
import { currentState, isOnScreen } from "../state/current";
import type { Session } from "../wire/frame";
import { SessionMenu } from "./SessionMenu";
import { StateDot } from "./StateDot";

export function SessionItem({ session, current }: { session: Session; current: boolean }) {
  const spent = cost(session.usage?.cost_usd || null);
  const state = (isOnScreen(session.id) && currentState.value) || session.state;
  const waits = state === "awaiting_confirmation";
  return (
    <li class={current ? "session-item current" : "session-item"}>
      <a href={`/sessions/${session.id}`} aria-current={current ? "page" : undefined}>
        <StateDot state={state} />
        <span class="session-title">{session.title || "Untitled"}</span>
        {waits && <span class="attention" aria-hidden="true" />}
        <span class="session-facts">
          {waits && <strong>waits for you</strong>}
          {session.model && <span class="session-model">{[session.agent !== "greenroom" && session.agent, session.model].filter(Boolean).join(" · ")}</span>}
          <span>{relativeTime(session.updated_at, now.value)}</span>
          {spent && <span>{spent}</span>}
        </span>
      </a>
      <SessionMenu session={session} />
    </li>
  );
}
