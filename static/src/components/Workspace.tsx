// The pane beside the conversation: what the agent plans, the commands that ran, and the raw frames.

import { useRef } from "preact/hooks";
import type { LiveSession } from "../state/live";
import { commandsOf } from "../state/commands";
import { TABS, type Layout, type Tab } from "../state/layout";
import { CommandsTab } from "./CommandsTab";
import { EventsTab } from "./EventsTab";
import { Icon } from "./Icon";
import { PlanTab } from "./PlanTab";

interface Props {
  live: LiveSession;
  layout: Layout;
  onChange: (layout: Layout) => void;
}

const NAMES: Record<Tab, string> = { plan: "Plan", commands: "Commands", events: "Events" };

export function Workspace({ live, layout, onChange }: Props) {
  // Chosen once, when all is known: a tab that changed under somebody who types would send their words elsewhere.
  const first = useRef<Tab | null>(null);
  if (live.isWhole) first.current ??= firstWithContent(live);
  const shown = layout.tab ?? first.current ?? "plan";

  /** Arrow keys walk through the tabs, as tabs are used everywhere. */
  const keyDown = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const tab = TABS[(TABS.indexOf(shown) + step + TABS.length) % TABS.length] ?? shown;
    onChange({ ...layout, tab });
    document.getElementById(`tab-${tab}`)?.focus();
  };

  return (
    <section class="workspace" aria-label="Workspace">
      <header class="workspace-header">
        <div class="tabs" role="tablist" aria-label="Workspace" onKeyDown={keyDown}>
          {TABS.map((tab) => (
            <button
              key={tab}
              type="button"
              class="tab"
              role="tab"
              id={`tab-${tab}`}
              aria-selected={tab === shown}
              aria-controls="tab-panel"
              tabIndex={tab === shown ? 0 : -1}
              onClick={() => onChange({ ...layout, tab })}
            >
              {NAMES[tab]}
              <Count live={live} tab={tab} />
            </button>
          ))}
        </div>
        <button
          type="button"
          class="icon-button fold-chat"
          aria-label={layout.folded === "chat" ? "Show the conversation" : "Hide the conversation"}
          title={layout.folded === "chat" ? "Show the conversation" : "Hide the conversation"}
          aria-pressed={layout.folded === "chat"}
          onClick={() => onChange({ ...layout, folded: layout.folded === "chat" ? null : "chat" })}
        >
          <Icon name="widen" />
        </button>
        <button
          type="button"
          class="icon-button"
          aria-label="Close the workspace"
          title="Close the workspace"
          onClick={() => onChange({ ...layout, folded: "workspace" })}
        >
          <Icon name="cross" />
        </button>
      </header>
      <div class="tab-panel" role="tabpanel" id="tab-panel" aria-labelledby={`tab-${shown}`}>
        <Panel live={live} tab={shown} />
      </div>
    </section>
  );
}

function firstWithContent(live: LiveSession): Tab {
  const { plan, rows } = live.state.peek();
  return plan || !rows.some((row) => row.kind === "tool" && row.name === "run") ? "plan" : "commands";
}

function Panel({ live, tab }: { live: LiveSession; tab: Tab }) {
  switch (tab) {
    case "plan":
      return <PlanTab live={live} />;
    case "commands":
      return <CommandsTab live={live} />;
    case "events":
      return <EventsTab live={live} />;
  }
}

function Count({ live, tab }: { live: LiveSession; tab: Tab }) {
  const { rows, plan, lastSeq } = live.state.value;
  switch (tab) {
    case "plan":
      if (!plan || plan.items.length === 0) return null;
      return (
        <span class="count">
          {plan.items.filter((item) => item.done).length}/{plan.items.length}
        </span>
      );
    case "commands": {
      const count = commandsOf(rows).length;
      return count === 0 ? null : <span class="count">{count}</span>;
    }
    case "events":
      return lastSeq === 0 ? null : <span class="count">{lastSeq}</span>;
  }
}
