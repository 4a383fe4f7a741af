// Layout of a session, live or recorded: header, conversation, workspace, announcements.

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { statusOfScreen } from "../state/activity";
import { currentSession } from "../state/currentSession";
import type { LiveSession } from "../state/liveSession";
import type { PaneLayout } from "../state/layout";
import { isNarrow } from "../state/narrowScreen";
import { lazy, pageSkeleton } from "./lazy";
import { WorkClockContext } from "./RunningTime";
import { SplitPane } from "./SplitPane";

const Workspace = lazy((later) => later.Workspace, <div class="workspace">{pageSkeleton}</div>);
const WorkspaceSheet = lazy((later) => later.WorkspaceSheet);

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
  const workspace = { key: live.id, live, layout: layout.value, onChange: (next: PaneLayout) => void (layout.value = next) };
  // On a narrow screen the workspace is a sheet over the conversation.
  const sheet = isNarrow.value && layout.value.folded !== "workspace";
  return (
    <div class={isTicking ? "session" : "session still"}>
      {header}
      <WorkClockContext.Provider value={clock}>
        <SplitPane
          layout={isNarrow.value ? { ...layout.value, folded: "workspace" } : layout.value}
          onChange={(next) => (layout.value = next)}
          first={<div class="conversation">{chat}</div>}
          second={<Workspace {...workspace} />}
        />
        {sheet && <WorkspaceSheet {...workspace} />}
      </WorkClockContext.Provider>
      <div class="visually-hidden" aria-live="polite">
        {live.state.value.announcements.map(({ seq, text }) => (
          <p key={seq}>{text}</p>
        ))}
      </div>
    </div>
  );
}
