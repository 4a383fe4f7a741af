// Session page: header, conversation, workspace, state line, message field.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { isComposing } from "../dom/ime";
import { controlsOf, isBudgetSpent } from "../state/activity";
import { currentSession, showSession } from "../state/currentSession";
import { LiveSession } from "../state/liveSession";
import { uploadsOf } from "../state/uploads";
import { Chat } from "./Chat";
import { Composer } from "./Composer";
import { DropZone } from "./DropZone";
import { lazy } from "./lazy";
import { PlainPage } from "./PlainPage";
import { SessionHeader } from "./SessionHeader";
import { SessionView } from "./SessionView";
import { StateLine } from "./StateLine";
import { route } from "../route";

const BudgetSpent = lazy((later) => later.BudgetSpent);
const ApprovalDock = lazy((later) => later.ApprovalDock);
const EventReveal = lazy((later) => later.EventReveal);
const Outbox = lazy((later) => later.RejectedRequests);
const PlanApproval = lazy((later) => later.PlanApproval);
const Queue = lazy((later) => later.Queue);

export function SessionPage({ id }: { id: string }) {
  const [live, setLive] = useState<LiveSession | null>(null);

  // Opens before the first paint, so that it shows the events.
  useLayoutEffect(() => {
    const opened = new LiveSession(id);
    const hide = showSession(opened);
    setLive(opened);
    return () => {
      hide();
      opened.close();
    };
  }, [id]);

  return live && currentSession.value?.live === live ? <OpenedSession live={live} /> : null;
}

function OpenedSession({ live }: { live: LiveSession }) {
  const { agentState, connection, queue, approvals, mode, pending, problem } = live.state.value;
  // The queue view stays, because an edited message may have left the queue.
  const shown = route.value;
  const target = shown.page === "session" && shown.id === live.id && shown.at !== undefined ? shown : null;
  const hasQueued = useRef(false);
  hasQueued.current ||= queue.length > 0;

  useEffect(() => {
    const interrupt = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || event.repeat || event.defaultPrevented || isComposing(event)) return;
      // Escape belongs to single-line fields. A checkbox ignores it, and the command field
      // interrupts as in a terminal.
      const isOfField = (event.target as Element).matches?.("input:not([type=checkbox], .command-field), select");
      if (document.querySelector("dialog[open]") || isOfField) return;
      const state = live.state.peek();
      const { interrupt: isOffered, isDisabled } = controlsOf(state);
      // An interrupt would withdraw the request. Escape decides nothing about it.
      if (isOffered && !isDisabled && state.approvals.length === 0) live.interrupt();
    };
    addEventListener("keydown", interrupt);
    return () => removeEventListener("keydown", interrupt);
  }, [live]);

  if (connection.phase === "refused" && connection.why === "no_such_session") {
    return (
      <PlainPage title="Session not found">
        <p class="muted">It may have been deleted.</p>
        <p>
          <a class="button" href="/sessions">
            Start a new session
          </a>
        </p>
      </PlainPage>
    );
  }
  return (
    <DropZone
      hint="Drop to attach to your next message"
      onFiles={agentState === "ended" ? null : (files) => uploadsOf(live.id).add(files, live.state.peek().model)}
    >
      <SessionView
        live={live}
        header={<SessionHeader live={live} />}
        chat={
          <>
            <Chat live={live} />
            <div class="dock">
              {target && <EventReveal live={live} target={target} />}
              {(problem || pending.some((sent) => sent.rejection !== undefined)) && <Outbox live={live} />}
              {approvals.length > 0 && <ApprovalDock live={live} />}
              {isBudgetSpent(live.state.value) && <BudgetSpent live={live} />}
              {mode === "plan" && <PlanApproval live={live} />}
              <StateLine live={live} />
              {hasQueued.current && <Queue live={live} />}
              <Composer live={live} />
            </div>
          </>
        }
      />
    </DropZone>
  );
}
