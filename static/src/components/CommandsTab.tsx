// Commands of the session with their output, and a field for the user's own.

import type { ComponentChildren, VNode } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { EndFollower } from "../dom/followEnd";
import { duration } from "../format";
import { useStoredText } from "../storage";
import { commandEnd } from "../state/commandEnd";
import { newestLines, textInWholeLines } from "../state/codeText";
import { commandsOf, outputOf } from "../state/commands";
import type { LiveSession } from "../state/liveSession";
import type { ToolRow } from "../state/rows";
import { commandKey } from "../state/pendingStorage";
import { CommandButtons } from "../terminal/CommandButtons";
import { truncationOf } from "../wire/eventShape";
import { AnsiText } from "./AnsiText";
import { EmptyState } from "./EmptyState";
import { pageSkeleton } from "./lazy";
import { Leftovers } from "./Leftovers";
import { RunningMark, RunningTime } from "./RunningTime";
import { TruncationNote } from "./TruncationNote";

/** Number of commands shown at first. */
const WINDOW = 40;
/**
 * Limit in characters. Only the end of longer output is shown, so a flood does not slow the page.
 */
const SHOWN_CHARS = 40_000;
/** Distance to the end that counts as being there, in pixels. */
const NEAR_END = 40;

export function CommandsTab({ live }: { live: LiveSession }) {
  const { rows, agentState, connection, pending } = live.state.value;
  const all = commandsOf(rows);
  const unsent = pending.filter((sent) => sent.request.action === "run" && sent.rejection === undefined);
  const [limit, setLimit] = useState(WINDOW);
  const screen = useRef<HTMLDivElement>(null);
  const end = useRef(new EndFollower(NEAR_END)).current;
  const drawn = useRef(new WeakMap<ToolRow, VNode>());

  useLayoutEffect(() => {
    if (screen.current) end.contentGrew(screen.current);
  });

  const view = (row: ToolRow) => {
    const known = drawn.current.get(row) ?? <Command key={row.key} row={row} />;
    drawn.current.set(row, known);
    return known;
  };

  const readOnly = agentState === "ended" || connection.phase === "recorded";
  return (
    <div class="commands">
      {all.length + unsent.length === 0 ? (
        <NoCommands isComplete={live.isComplete} />
      ) : (
        <div class="screen" ref={screen} onScroll={(event) => end.readerMoved(event.currentTarget)} tabIndex={0} role="region" aria-label="Commands">
          {all.length > limit && (
            <button type="button" class="button" onClick={() => setLimit(limit + WINDOW)}>
              Show {Math.min(WINDOW, all.length - limit)} earlier of {all.length - limit}
            </button>
          )}
          {all.slice(-limit).map(view)}
          {unsent.map(({ id, request }) => (
            <div key={id} class="unsent">
              <CommandLine user command={request.action === "run" ? request.args.command : ""}>
                <span class="ending">Sending…</span>
              </CommandLine>
            </div>
          ))}
        </div>
      )}
      <Leftovers live={live} />
      {!readOnly && <Prompt live={live} />}
    </div>
  );
}

function NoCommands({ isComplete }: { isComplete: boolean }) {
  if (!isComplete) return pageSkeleton;
  return (
    <EmptyState icon="terminal" title="No commands yet">
      Commands and their live output appear here.
    </EmptyState>
  );
}

function Command({ row }: { row: ToolRow }) {
  const command = typeof row.args.command === "string" ? row.args.command : "";
  const truncated = truncationOf(row.end?.extras);
  return (
    <div class="command">
      <CommandLine user={row.source === "user"} command={command}>
        <CommandOutcome row={row} />
        <CommandButtons row={row} />
      </CommandLine>
      <AnsiText text={newestLines(textInWholeLines(outputOf(row), truncated?.bytes), SHOWN_CHARS)} />
      <TruncationNote truncated={truncated} />
    </div>
  );
}

function CommandLine({ user, command, children }: { user: boolean; command: string; children: ComponentChildren }) {
  return (
    <div class="command-line">
      <span class="prompt" aria-hidden="true">
        {user ? "you $" : "$"}
      </span>
      <code>{command}</code>
      {children}
    </div>
  );
}

function CommandOutcome({ row }: { row: ToolRow }) {
  if (!row.end) {
    return (
      <span class="ending">
        <RunningMark />
        <RunningTime since={row.at} pausedMs={row.pausedMs} />
      </span>
    );
  }
  const { outcome, extras, durationMs } = row.end;
  const cut = outcome === "cut" ? "cut short" : "interrupted";
  return (
    <span class={`ending ${outcome}`}>
      {outcome !== "ok" && <span>{commandEnd(extras) ?? cut}</span>}
      {durationMs !== null && <span>{duration(durationMs)}</span>}
    </span>
  );
}

function Prompt({ live }: { live: LiveSession }) {
  // The draft survives the tab and the page.
  const [command, setCommand] = useStoredText(commandKey(live.id));
  const submit = (event: Event) => {
    event.preventDefault();
    if (!command.trim()) return;
    live.run(command.trim());
    setCommand("");
  };
  return (
    <form class="prompt-line" onSubmit={submit}>
      <span class="prompt" aria-hidden="true">
        you $
      </span>
      <input
        class="command-field"
        aria-label="Command to run in the sandbox"
        placeholder="Run a command in the sandbox"
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        value={command}
        onInput={(event) => setCommand(event.currentTarget.value)}
      />
      <button type="submit" class="button" disabled={!command.trim()}>
        Run
      </button>
    </form>
  );
}
