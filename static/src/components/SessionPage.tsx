// One session: its header, its conversation beside its workspace, and below that what it does now and the field to speak to it.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { isComposing } from "../composing";
import { isStoppable } from "../state/activity";
import { current, show } from "../state/current";
import { LiveSession } from "../state/live";
import { uploadsOf } from "../state/uploads";
import { Chat } from "./Chat";
import { Composer } from "./Composer";
import { DropZone } from "./DropZone";
import { lazy } from "./lazy";
import { Page } from "./Page";
import { SessionHeader } from "./SessionHeader";
import { SessionView } from "./SessionView";
import { StateLine } from "./StateLine";

const ConfirmDock = lazy((later) => later.ConfirmDock);
const Outbox = lazy((later) => later.Outbox);
const Queue = lazy((later) => later.Queue);

export function SessionPage({ id }: { id: string }) {
  const [live, setLive] = useState<LiveSession | null>(null);

  // Before the browser paints: so the first picture has its events.
  useLayoutEffect(() => {
    const opened = new LiveSession(id);
    const hide = show(opened);
    setLive(opened);
    return () => {
      hide();
      opened.close();
    };
  }, [id]);

  return live && current.value?.live === live ? <Opened live={live} /> : null;
}

function Opened({ live }: { live: LiveSession }) {
  const { agentState, connection, queue, question, sending, trouble } = live.state.value;
  // What left the queue may be there still, because somebody was about to change it.
  const hasQueued = useRef(false);
  hasQueued.current ||= queue.length > 0;

  useEffect(() => {
    const interrupt = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || event.repeat || event.defaultPrevented || isComposing(event)) return;
      // In a field of one line it is about that field, as browsers have it. A box that is ticked has no use for it, and where
      // commands are written it stops one, as in every terminal.
      const isOfField = (event.target as Element).matches?.("input:not([type=checkbox], .command-field), select");
      if (document.querySelector("dialog[open]") || isOfField) return;
      if (isStoppable(live.state.peek())) live.interrupt();
    };
    addEventListener("keydown", interrupt);
    return () => removeEventListener("keydown", interrupt);
  }, [live]);

  if (connection.phase === "refused" && connection.why === "no_such_session") {
    return (
      <Page title="There is no such session">
        <p class="muted">It may have been deleted.</p>
        <p>
          <a class="button" href="/sessions">
            Start a new one
          </a>
        </p>
      </Page>
    );
  }
  return (
    <DropZone
      hint="Drop to attach to your next message"
      onFiles={agentState === "ended" ? null : (files) => uploadsOf(live.id).add(files)}
    >
      <SessionView
        live={live}
        header={<SessionHeader live={live} />}
        chat={
          <>
            <Chat live={live} />
            <div class="dock">
              {(trouble || sending.some((sent) => sent.refusal !== undefined)) && <Outbox live={live} />}
              {question && <ConfirmDock key={question.request} live={live} />}
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
