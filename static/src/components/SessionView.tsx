// Layout of a session, live or recorded: header, conversation, workspace, announcements.

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { statusOfScreen } from "../state/activity";
import { currentSession } from "../state/currentSession";
import type { LiveSession } from "../state/liveSession";
import { isNarrow } from "../state/narrowScreen";
import { lazy, pageSkeleton } from "./lazy";
import { WorkClockContext } from "./RunningTime";
import { SplitPane } from "./SplitPane";

const Workspace = lazy((later) => later.Workspace, <div class="workspace">{pageSkeleton}</div>);

interface SessionViewProps {
  live: LiveSession;
  header: ComponentChildren;
  chat: ComponentChildren;
}

export function SessionView({ live, header, chat }: SessionViewProps) {
  const layout = currentSession.value?.layout;
  const { isTicking, label } = statusOfScreen(live.state.value);
  const clock = useMemo(() => ({ isTicking, label }), [isTicking, label]);
  if (!layout) return null;
  return (
    <div class={isTicking ? "session" : "session still"}>
      {header}
      <WorkClockContext.Provider value={clock}>
        <SplitPane
          layout={layout.value}
          stacked={isNarrow.value}
          onChange={(next) => (layout.value = next)}
          first={<div class="conversation">{chat}</div>}
          second={<Workspace key={live.id} live={live} layout={layout.value} onChange={(next) => (layout.value = next)} />}
        />
      </WorkClockContext.Provider>
      <div class="visually-hidden" aria-live="polite">
        {live.state.value.announcements.map(({ seq, text }) => (
          <p key={seq}>{text}</p>
        ))}
      </div>
    </div>
  );
}
