// Workspace pane: plan, commands, terminals, files, changes, browser, raw frames.

import { useLayoutEffect, useRef } from "preact/hooks";
import { BrowserTab } from "../browser/BrowserTab";
import { hasPages } from "../browser/visitedPages";
import { ChangesTab } from "../changes/ChangesTab";
import type { LiveSession } from "../state/liveSession";
import { commandsOf } from "../state/commands";
import { FilesTab } from "../files/FilesTab";
import { WorkspaceIcon } from "../files/WorkspaceIcon";
import { TABS, type PaneLayout, type WorkspaceTab } from "../state/layout";
import { TerminalTab } from "../terminal/TerminalTab";
import { CommandsTab } from "./CommandsTab";
import { EventsTab } from "./EventsTab";
import { Icon } from "./Icon";
import { PlanTab } from "./PlanTab";

export interface WorkspaceProps {
  live: LiveSession;
  layout: PaneLayout;
  onChange: (layout: PaneLayout) => void;
}

const NAMES: Record<WorkspaceTab, string> = { plan: "Plan", commands: "Commands", terminal: "Terminal", files: "Files", changes: "Changes", browser: "Browser", events: "Events" };

/** Tabs that need the server. A recording has none. */
const LIVE_TABS: readonly WorkspaceTab[] = ["terminal", "files", "changes"];

export function Workspace({ live, layout, onChange }: WorkspaceProps) {
  // First tab, chosen once after loading. A later change would redirect typed text.
  const first = useRef<WorkspaceTab | null>(null);
  if (live.isComplete) first.current ??= firstWithContent(live);
  const withBrowser = hasPages(live.state.value.rows);
  const tabs = TABS.filter((tab) => (tab === "browser" ? withBrowser : !live.isRecorded || !LIVE_TABS.includes(tab)));
  const shown = tabs.find((tab) => tab === layout.tab) ?? first.current ?? "plan";

  // A narrow pane has no room for all tabs.
  useLayoutEffect(() => document.getElementById(`tab-${shown}`)?.scrollIntoView?.({ block: "nearest", inline: "nearest" }), [shown]);

  /** Handles arrow keys between tabs. */
  const keyDown = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const tab = tabs[(tabs.indexOf(shown) + step + tabs.length) % tabs.length] ?? shown;
    onChange({ ...layout, tab });
    document.getElementById(`tab-${tab}`)?.focus();
  };

  return (
    <section class="workspace" aria-label="Workspace">
      <header class="workspace-header">
        <div class="tabs" role="tablist" aria-label="Workspace" onKeyDown={keyDown}>
          {tabs.map((tab) => (
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
          <WorkspaceIcon name="widen" />
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

function firstWithContent(live: LiveSession): WorkspaceTab {
  const { plan, rows } = live.state.peek();
  return plan || !rows.some((row) => row.kind === "tool" && row.name === "run") ? "plan" : "commands";
}

function Panel({ live, tab }: { live: LiveSession; tab: WorkspaceTab }) {
  switch (tab) {
    case "plan":
      return <PlanTab live={live} />;
    case "commands":
      return <CommandsTab live={live} />;
    case "terminal":
      return <TerminalTab live={live} />;
    case "files":
      return <FilesTab live={live} />;
    case "changes":
      return <ChangesTab live={live} />;
    case "browser":
      return <BrowserTab live={live} />;
    case "events":
      return <EventsTab live={live} />;
  }
}

function Count({ live, tab }: { live: LiveSession; tab: WorkspaceTab }) {
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
    case "terminal":
    case "files":
    case "changes":
    case "browser":
      return null;
    case "events":
      return lastSeq === 0 ? null : <span class="count">{lastSeq}</span>;
  }
}
