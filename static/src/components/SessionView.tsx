// How a session's page is laid out, live or recorded: header, conversation, workspace, and what a screen reader hears.

import type { ComponentChildren } from "preact";
import { current } from "../state/current";
import type { LiveSession } from "../state/live";
import { isNarrow } from "../state/width";
import { lazy, pageSkeleton } from "./lazy";
import { Split } from "./Split";

const Workspace = lazy((later) => later.Workspace, <div class="workspace">{pageSkeleton}</div>);

interface Props {
  live: LiveSession;
  header: ComponentChildren;
  chat: ComponentChildren;
}

export function SessionView({ live, header, chat }: Props) {
  const layout = current.value?.layout;
  if (!layout) return null;
  return (
    <div class="session">
      {header}
      <Split
        layout={layout.value}
        stacked={isNarrow.value}
        onChange={(next) => (layout.value = next)}
        first={<div class="conversation">{chat}</div>}
        second={<Workspace key={live.id} live={live} layout={layout.value} onChange={(next) => (layout.value = next)} />}
      />
      <div class="visually-hidden" aria-live="polite">
        {live.state.value.spoken.map(({ seq, text }) => (
          <p key={seq}>{text}</p>
        ))}
      </div>
    </div>
  );
}
