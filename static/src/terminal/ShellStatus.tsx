// Line below a terminal: its state, the size in force, and the switches.

import { useComputed } from "@preact/signals";
import { Icon } from "../components/Icon";
import { WorkspaceIcon } from "../files/WorkspaceIcon";
import { screenReader, setScreenReader } from "./screenReader";
import type { ShellView } from "./shellView";
import type { TerminalConnection, TerminalPhase } from "./terminalConnection";

export function ShellStatus({ view }: { view: ShellView }) {
  const { connection } = view;
  const phase = connection.phase.value;
  const text = useComputed(() => statusText(connection)).value;
  const problem = view.problem.value || connection.problem.value;
  return (
    <footer class="shell-status">
      <span class="shell-state" role="status">
        {text}
        {problem && <span class="file-problem"> {problem}</span>}
      </span>
      {phase.kind === "ended" && phase.reason !== "session" && (
        <button type="button" class="button primary" onClick={() => view.restart()}>
          New shell
        </button>
      )}
      {(phase.kind === "away" || phase.kind === "rejected") && (
        <button type="button" class="button" onClick={() => view.restart()}>
          Try again
        </button>
      )}
      <span class="shell-hint">Ctrl+Shift+Enter leaves the terminal</span>
      <button type="button" class="icon-button" aria-label="Find in the terminal" title="Find (Ctrl+Shift+F)" onClick={() => (view.isFinding.value = true)}>
        <Icon name="search" />
      </button>
      <button
        type="button"
        class="icon-button"
        aria-label="Screen reader mode"
        title="Screen reader mode"
        aria-pressed={screenReader.value}
        onClick={() => setScreenReader(!screenReader.value)}
      >
        <WorkspaceIcon name="screen_reader" />
      </button>
    </footer>
  );
}

function statusText({ phase, isPaused, size, windowSize }: TerminalConnection): string {
  if (phase.value.kind !== "live") return phaseText(phase.value);
  if (isPaused.value) return "Paused. Input waits.";
  const inForce = size.value;
  const isSmaller = inForce !== null && inForce.clients > 1 && (inForce.cols < windowSize.cols || inForce.rows < windowSize.rows);
  return isSmaller ? `Sized ${inForce.cols} × ${inForce.rows} by another client` : "";
}

/** Returns the text of a terminal that is not connected. */
export function phaseText(phase: TerminalPhase): string {
  switch (phase.kind) {
    case "connecting":
      return "Connecting…";
    case "starting":
      return "The sandbox is starting…";
    case "away":
      return "Connection lost. Reconnecting…";
    case "rejected":
      return phase.text;
    case "ended":
      if (phase.reason === "session") return "The session has ended.";
      if (phase.reason === "sandbox") return "The sandbox stopped.";
      if (phase.signal !== undefined) return `The shell was ended by ${phase.signal}.`;
      return phase.code ? `The shell ended with code ${phase.code}.` : "The shell has ended.";
    case "live":
      return "";
  }
}
