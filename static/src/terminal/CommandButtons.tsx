// Ways from a command into a terminal: type it there, or see its output there.

import { Icon } from "../components/Icon";
import { WorkspaceIcon } from "../files/WorkspaceIcon";
import { currentSession } from "../state/currentSession";
import type { ToolRow } from "../state/rows";
import { terminalTabsOf } from "./terminalTabs";
import { typeIntoTerminal } from "./typedCommand";

export function CommandButtons({ row }: { row: ToolRow }) {
  const current = currentSession.value;
  const command = typeof row.args.command === "string" ? row.args.command : "";
  if (!current || current.live.isRecorded || command === "") return null;
  const { live, layout } = current;
  const view = () => {
    terminalTabsOf(live.id).openRun(row.key);
    layout.value = { ...layout.value, tab: "terminal", folded: layout.value.folded === "workspace" ? null : layout.value.folded };
  };
  const type = () => {
    const tabs = terminalTabsOf(live.id);
    // A view has no shell.
    if (tabs.shown.peek().kind === "run") tabs.show({ kind: "shell", name: tabs.names.peek()[0]! });
    typeIntoTerminal(live.id, command);
  };
  return (
    <span class="command-buttons">
      <button type="button" class="icon-button" aria-label="Open the output in a terminal view" title="Open as a terminal view" onClick={view}>
        <WorkspaceIcon name="text" />
      </button>
      <button type="button" class="icon-button" aria-label="Run this in a terminal" title="Run this in a terminal" onClick={type}>
        <Icon name="terminal" />
      </button>
    </span>
  );
}
