// Tool call: one line with action, state and duration. Unfolds to input and output.

import { useState } from "preact/hooks";
import { duration, firstLine } from "../format";
import { commandEnd } from "../state/commandEnd";
import { diffsOf } from "../state/genericCall";
import type { ToolRow } from "../state/rows";
import { truncationOf } from "../wire/eventShape";
import { Diff } from "./Diff";
import { GenericToolBody, genericAppearance } from "./GenericTool";
import { Icon, type IconName } from "./Icon";
import { Lines } from "./Lines";
import { Output } from "./Output";
import { RunningMark, RunningTime } from "./RunningTime";
import { TruncationNote } from "./TruncationNote";

/** Age from which a running call shows a clock. */
const CLOCK_FROM_MS = 1000;

/** Longest diff shown unfolded, in lines. */
const SHORT_DIFF = 24;

interface ToolAppearance {
  icon: IconName;
  doing: string;
  done: string;
  /** Argument shown in the line. */
  subject: string;
}

const TOOL_APPEARANCES: Record<string, ToolAppearance> = {
  run: { icon: "terminal", doing: "Running", done: "Ran", subject: "command" },
  read: { icon: "file", doing: "Reading", done: "Read", subject: "path" },
  write: { icon: "pencil", doing: "Writing", done: "Wrote", subject: "path" },
  edit: { icon: "pencil", doing: "Editing", done: "Edited", subject: "path" },
  browse: { icon: "globe", doing: "Opening", done: "Opened", subject: "url" },
};

export function ToolCall({ row }: { row: ToolRow }) {
  const [chosen, setChosen] = useState<boolean | null>(null);
  const shown = chosen ?? opensItself(row);
  const { icon, verb, subject } = appearanceOf(row);
  return (
    <div class={`row tool ${row.end?.outcome ?? "running"}`}>
      <button type="button" class="tool-line" aria-expanded={shown} onClick={() => setChosen(!shown)}>
        <Icon name={icon} />
        <span class="tool-verb">
          {row.source === "user" && "You: "}
          {verb}
        </span>
        {subject && (row.name === "tool" ? <span class="tool-title" dir="auto">{firstLine(subject)}</span> : <code>{firstLine(subject)}</code>)}
        <Facts row={row} />
        <Icon name="chevron" />
      </button>
      {shown && <Body row={row} subject={subject} withJson={chosen === true} />}
    </div>
  );
}

function appearanceOf(row: ToolRow): { icon: IconName; verb: string; subject: string } {
  if (row.name === null) return { icon: "tool", verb: "Preparing the next step", subject: "" };
  if (row.name === "tool") return genericAppearance(row);
  const look = Object.hasOwn(TOOL_APPEARANCES, row.name) ? TOOL_APPEARANCES[row.name] : undefined;
  if (!look) return { icon: "tool", verb: row.end ? "Used" : "Using", subject: row.name };
  const subject = row.args[look.subject];
  return { icon: look.icon, verb: row.end ? look.done : look.doing, subject: typeof subject === "string" ? subject : "" };
}

function opensItself(row: ToolRow): boolean {
  if (row.name === "run") return row.end === null && row.output.text !== "";
  const diff = row.name === "tool" ? diffsOf(row) : diffOf(row);
  return diff !== null && diff.split("\n").length <= SHORT_DIFF;
}

function diffOf(row: ToolRow): string | null {
  const diff = row.end?.extras.diff;
  return typeof diff === "string" && diff !== "" ? diff : null;
}

function Facts({ row }: { row: ToolRow }) {
  return (
    <span class="tool-facts">
      {row.end ? <Outcome row={row} /> : <RunningMark />}
      {row.end === null && <RunningTime since={row.at} pausedMs={row.pausedMs} from={CLOCK_FROM_MS} />}
      {row.end?.durationMs != null && <span>{duration(row.end.durationMs)}</span>}
    </span>
  );
}

function Outcome({ row }: { row: ToolRow }) {
  switch (row.end?.outcome) {
    case "failed":
      return <span class="outcome">{commandEnd(row.end.extras) ?? "failed"}</span>;
    case "stopped":
      return <span class="outcome">interrupted</span>;
    case "cut":
      return <span class="outcome">cut short</span>;
    default:
      return null;
  }
}

/** `whole`: unfolded by the user. */
function Body({ row, subject, withJson }: { row: ToolRow; subject: string; withJson: boolean }) {
  const diff = diffOf(row);
  const output = row.end ? row.end.content : row.output.text;
  // A diff or the written content serves as output.
  const isSilent = diff !== null || (row.name === "write" && output === "");
  return (
    <div class="tool-body">
      {row.seq === null && <Output text={row.input.text} live />}
      {row.name === "run" && subject.includes("\n") && <Lines label="Command" text={subject} />}
      {row.name === "write" && typeof row.args.content === "string" && <Lines label="Content" text={row.args.content} />}
      {diff && <Diff text={diff} />}
      {row.name === "tool" && <GenericToolBody row={row} />}
      {row.name !== null && row.name !== "tool" && !Object.hasOwn(TOOL_APPEARANCES, row.name) && <Lines label="Input" text={JSON.stringify(row.args, null, 2)} />}
      {row.seq !== null && !isSilent && <Output text={output} live={row.end === null} />}
      <TruncationNote truncated={truncationOf(row.end?.extras)} />
      {withJson && (
        <details class="raw">
          <summary>Input and output as JSON</summary>
          <Lines label="Input and output" text={JSON.stringify({ input: row.args, output: row.end?.extras ?? null }, null, 2)} />
        </details>
      )}
    </div>
  );
}
