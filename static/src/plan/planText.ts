// Steps of a plan in its Markdown. The same rules as `agent/protocol/src/plan.rs`.

export type StepState = "pending" | "in_progress" | "completed";

export interface PlanStep {
  /** Number of the line, from 0. */
  line: number;
  /** Whole line as written. */
  raw: string;
  state: StepState;
  text: string;
  /** Level of the indentation, from 0. */
  depth: number;
}

/** Part of a plan: steps in a row, or other Markdown. */
export type PlanPart = { kind: "steps"; steps: PlanStep[] } | { kind: "markdown"; line: number; text: string };

const STEP = /^(\s*)(\d*[-*+.)]*\s*\[)([ xX~/]?)\](?![([:])(.*)$/;
const FENCE = /^\s*(```|~~~)/;
const MARKS: Record<StepState, string> = { pending: " ", in_progress: "~", completed: "x" };
/** Deepest level that is drawn. */
const MAX_DEPTH = 5;

const stateOf = (mark: string): StepState => (/x/i.test(mark) ? "completed" : /[~/]/.test(mark) ? "in_progress" : "pending");

/** Splits a plan at its steps. Lines within a code fence are no steps. */
export function planParts(markdown: string): PlanPart[] {
  const parts: PlanPart[] = [];
  let fence: string | null = null;
  markdown.split("\n").forEach((raw, line) => {
    const mark = FENCE.exec(raw)?.[1] ?? null;
    const step = fence === null && mark === null ? STEP.exec(raw.replace(/\r$/, "")) : null;
    if (mark !== null && (fence === null || fence === mark)) fence = fence === null ? mark : null;
    const last = parts.at(-1);
    if (step) {
      const [, indent = "", , state = "", text = ""] = step;
      const depth = Math.min(MAX_DEPTH, Math.floor(indent.replaceAll("\t", "    ").length / 2));
      const found: PlanStep = { line, raw, state: stateOf(state), text: text.trim(), depth };
      if (last?.kind === "steps") last.steps.push(found);
      else parts.push({ kind: "steps", steps: [found] });
    } else if (last?.kind === "markdown") {
      last.text += `\n${raw}`;
    } else if (raw.trim() !== "") {
      // Text right after a step is indented like the step's text.
      parts.push({ kind: "markdown", line, text: last ? raw.trimStart() : raw });
    }
  });
  return parts;
}

/** Returns the plan with another state of a step. `null`: the plan has no such line any more. */
export function withState(markdown: string, step: PlanStep, state: StepState): string | null {
  const lines = markdown.split("\n");
  const bare = (line: string | undefined) => line?.replace(/\r$/, "");
  const same = (line: string | undefined) => bare(line) === bare(step.raw);
  const matches = lines.flatMap((line, index) => (same(line) ? [index] : []));
  // Lines may have moved. Two equal steps cannot be told apart then.
  const at = same(lines[step.line]) ? step.line : matches.length === 1 ? matches[0]! : -1;
  if (at < 0) return null;
  const end = lines[at]!.endsWith("\r") ? "\r" : "";
  lines[at] = bare(step.raw)!.replace(STEP, (_, indent: string, bullet: string, _mark, text: string) => `${indent}${bullet}${MARKS[state]}]${text}`) + end;
  return lines.join("\n");
}
