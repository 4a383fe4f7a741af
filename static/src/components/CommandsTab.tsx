// Every command that ran, with its output as a terminal shows it; and a line to run one's own.

import type { ComponentChildren, VNode } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { now } from "../clock";
import { Following } from "../follow";
import { duration, elapsed } from "../format";
import { useKept } from "../keep";
import { commandsOf, outputOf } from "../state/commands";
import type { LiveSession } from "../state/live";
import type { ToolRow } from "../state/rows";
import { commandKey } from "../state/unsent";
import { truncatedOf } from "../wire/shape";
import { AnsiText } from "./AnsiText";
import { Empty } from "./Empty";
import { pageSkeleton } from "./lazy";
import { Whole } from "./Whole";

/** How many commands are on the screen at first. */
const WINDOW = 40;
/** How near to the end still counts as being there, in pixels. */
const NEAR_END = 40;

export function CommandsTab({ live }: { live: LiveSession }) {
  const { rows, agentState, connection, sending } = live.state.value;
  const all = commandsOf(rows);
  const unsent = sending.filter((sent) => sent.wish.action === "run" && sent.refusal === undefined);
  const [limit, setLimit] = useState(WINDOW);
  const screen = useRef<HTMLDivElement>(null);
  const end = useRef(new Following(NEAR_END)).current;
  const drawn = useRef(new WeakMap<ToolRow, VNode>());

  useLayoutEffect(() => {
    if (screen.current) end.follow(screen.current);
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
        <NoneYet known={live.isWhole} />
      ) : (
        <div class="screen" ref={screen} onScroll={(event) => end.look(event.currentTarget)} tabIndex={0} role="region" aria-label="Commands">
          {all.length > limit && (
            <button type="button" class="button" onClick={() => setLimit(limit + WINDOW)}>
              Show {Math.min(WINDOW, all.length - limit)} earlier of {all.length - limit}
            </button>
          )}
          {all.slice(-limit).map(view)}
          {unsent.map(({ id, wish }) => (
            <div key={id} class="unsent">
              <Line user command={wish.action === "run" ? wish.args.command : ""}>
                <span class="ending">sending…</span>
              </Line>
            </div>
          ))}
        </div>
      )}
      {!readOnly && <Prompt live={live} />}
    </div>
  );
}

function NoneYet({ known }: { known: boolean }) {
  if (!known) return pageSkeleton;
  return (
    <Empty icon="terminal" title="No command yet">
      What the agent runs, and what you run, shows here with its output while it is printed.
    </Empty>
  );
}

function Command({ row }: { row: ToolRow }) {
  const command = typeof row.args.command === "string" ? row.args.command : "";
  return (
    <div class="command">
      <Line user={row.source === "user"} command={command}>
        <Ending row={row} />
      </Line>
      <AnsiText text={outputOf(row)} />
      <Whole truncated={truncatedOf(row.end?.extras)} />
    </div>
  );
}

function Line({ user, command, children }: { user: boolean; command: string; children: ComponentChildren }) {
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

function Ending({ row }: { row: ToolRow }) {
  if (!row.end) {
    return (
      <span class="ending">
        <span class="spinner" role="img" aria-label="running" />
        {row.at && elapsed(now.value - Date.parse(row.at))}
      </span>
    );
  }
  const { outcome, extras, durationMs } = row.end;
  const cut = outcome === "cut" ? "cut short" : "stopped";
  const code = typeof extras.exit_code === "number" ? `exit ${extras.exit_code}` : extras.timed_out ? "out of time" : cut;
  return (
    <span class={`ending ${outcome}`}>
      {outcome !== "ok" && <span>{code}</span>}
      {durationMs !== null && <span>{duration(durationMs)}</span>}
    </span>
  );
}

function Prompt({ live }: { live: LiveSession }) {
  // One that was begun outlives its tab, and the page.
  const [command, setCommand] = useKept(commandKey(live.id));
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
