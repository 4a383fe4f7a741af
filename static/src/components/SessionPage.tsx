// One session: its header, its conversation, and below that what it does now and the field to speak to it.

import { useEffect, useState } from "preact/hooks";
import { isWorking } from "../state/activity";
import { LiveSession } from "../state/live";
import { Chat } from "./Chat";
import { Composer } from "./Composer";
import { ConfirmDock } from "./ConfirmDock";
import { Outbox } from "./Outbox";
import { Page } from "./Page";
import { Queue } from "./Queue";
import { SessionHeader } from "./SessionHeader";
import { StateLine } from "./StateLine";

export function SessionPage({ id }: { id: string }) {
  const [live, setLive] = useState<LiveSession | null>(null);

  useEffect(() => {
    const opened = new LiveSession(id);
    setLive(opened);
    return () => opened.close();
  }, [id]);

  return live && <Opened live={live} />;
}

function Opened({ live }: { live: LiveSession }) {
  const { connection, session, agentState } = live.state.value;
  const title = session?.title || "Session";
  const running = agentState === "running";

  useEffect(() => {
    document.title = `${running ? "● " : ""}${title} · Greenroom`;
    return () => {
      document.title = "Greenroom";
    };
  }, [title, running]);

  useEffect(() => {
    const interrupt = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || event.defaultPrevented || event.isComposing) return;
      if (document.querySelector("dialog[open]")) return;
      if (isWorking(live.state.peek().agentState) && !live.stopping.peek()) live.interrupt();
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
    <div class="session">
      <SessionHeader live={live} />
      <Chat live={live} />
      <div class="dock">
        <Outbox live={live} />
        <ConfirmDock live={live} />
        <StateLine live={live} />
        <Queue live={live} />
        <Composer live={live} />
      </div>
      <div class="visually-hidden" aria-live="polite">
        {live.state.value.announcement}
      </div>
    </div>
  );
}
