// Tool call: one line with action, state and duration. Unfolds to input and output.

import { useState } from "preact/hooks";
import { duration, firstLine } from "../format";
import { commandEnd } from "../state/commandEnd";
import { diffsOf } from "../state/genericCall";
import type { ToolRow } from "../state/rows";
import { appearanceOf, diffOf, isDenied } from "../state/toolAppearance";
import { FOLDED_LINES } from "./Fence";
import { Icon } from "./Icon";
import { lazy } from "./lazy";
import { RunningMark, RunningTime } from "./RunningTime";

const CallReview = lazy((later) => later.CallReview);
const RiskBadge = lazy((later) => later.RiskBadge);
const ToolBody = lazy((later) => later.ToolBody);

interface ToolCallProps {
  row: ToolRow;
  /** Receives each change of the fold by the user. */
  onToggle?: ((unfolded: boolean) => void) | undefined;
}

export function ToolCall({ row, onToggle }: ToolCallProps) {
  const [chosen, setChosen] = useState<boolean | null>(null);
  const shown = chosen ?? opensItself(row);
  const { icon, verb, subject } = appearanceOf(row);
  const toggle = () => {
    setChosen(!shown);
    onToggle?.(!shown);
  };
  return (
    <div class={`row tool ${row.end?.outcome ?? "running"}`}>
      <button type="button" class="tool-line" aria-expanded={shown} onClick={toggle}>
        <Icon name={icon} />
        <span class="tool-verb">
          {row.source === "user" && "You: "}
          {verb}
        </span>
        {subject && (row.name === "tool" ? <span class="tool-title" dir="auto">{firstLine(subject)}</span> : <code>{firstLine(subject)}</code>)}
        <Facts row={row} />
        <Icon name="chevron" />
      </button>
      {row.decision && <CallReview decision={row.decision} />}
      {shown && <ToolBody row={row} subject={subject} withJson={chosen === true} />}
    </div>
  );
}

function opensItself(row: ToolRow): boolean {
  if (row.name === "run") return row.end === null && row.output.text !== "";
  const diff = row.name === "tool" ? diffsOf(row) : diffOf(row);
  return diff !== null && diff.split("\n").length <= FOLDED_LINES;
}

function Facts({ row }: { row: ToolRow }) {
  return (
    <span class="tool-facts">
      {row.risk && <RiskBadge risk={row.risk} />}
      {row.end ? <Outcome row={row} /> : row.isHeld ? <span class="outcome">waiting for you</span> : <RunningMark />}
      {row.end === null && !row.isHeld && <RunningTime since={row.at} pausedMs={row.pausedMs} />}
      {row.end && !isDenied(row) && <Duration ms={row.end.durationMs} />}
    </span>
  );
}

function Duration({ ms }: { ms: number | null }) {
  const text = duration(ms ?? 0);
  return text ? <span>{text}</span> : null;
}

function Outcome({ row }: { row: ToolRow }) {
  switch (row.end?.outcome) {
    case "failed":
      return <span class="outcome">{isDenied(row) ? "denied" : (commandEnd(row.end.extras) ?? "failed")}</span>;
    case "stopped":
      return <span class="outcome">interrupted</span>;
    case "cut":
      return <span class="outcome">cut short</span>;
    default:
      return null;
  }
}
