// Terminals of the sandbox, and commands of the agent as read-only views.

import { useEffect, useState } from "preact/hooks";
import { EmptyState } from "../components/EmptyState";
import { ErrorNotice } from "../components/ErrorNotice";
import type { LiveSession } from "../state/liveSession";
import { CommandScreen } from "./CommandScreen";
import { ShellPane } from "./ShellPane";
import { TerminalStrip } from "./TerminalStrip";
import { terminalTabsOf } from "./terminalTabs";
import { typedCommand } from "./typedCommand";

export function TerminalTab({ live }: { live: LiveSession }) {
  const tabs = terminalTabsOf(live.id);
  const { agentState } = live.state.value;
  const [isAsked, setAsked] = useState(false);
  const shown = tabs.shown.value;
  const isStopped = agentState === "stopped" || agentState === "failed";

  useEffect(() => {
    if (!isStopped && agentState !== "ended") void tabs.refresh();
  }, [tabs, isStopped]);

  const content = () => {
    if (shown.kind === "run") return <CommandScreen key={shown.row} live={live} row={shown.row} />;
    if (agentState === "ended") {
      return (
        <EmptyState icon="terminal" title="The session has ended">
          Its terminals ended with it.
        </EmptyState>
      );
    }
    // Opening a terminal starts the sandbox, so a person asks for it.
    if (isStopped && !isAsked && typedCommand.value === null) return <StoppedNote onOpen={() => setAsked(true)} />;
    return <ShellPane key={shown.name} session={live.id} tabs={tabs} name={shown.name} />;
  };

  return (
    <div class="terminals">
      <TerminalStrip live={live} tabs={tabs} />
      {tabs.problem.value && <ErrorNotice text={tabs.problem.value} retryLabel="Dismiss" onRetry={() => (tabs.problem.value = "")} />}
      <div class="terminal-panel" role="tabpanel" id="terminal-panel" aria-label="Terminal">
        {content()}
      </div>
    </div>
  );
}

function StoppedNote({ onOpen }: { onOpen: () => void }) {
  return (
    <div class="terminal-note">
      <EmptyState icon="terminal" title="The sandbox is stopped">
        A terminal starts it.
      </EmptyState>
      <button type="button" class="button primary" onClick={onOpen}>
        Open a terminal
      </button>
    </div>
  );
}
