// Steps of a plan, each with a box to tick.

import type { JSX } from "preact";
import { Markdown } from "../components/Markdown";
import type { PlanStep, StepState } from "./planText";

interface PlanStepsProps {
  steps: readonly PlanStep[];
  /** Absent: the plan cannot be changed. */
  onChange: ((step: PlanStep, state: StepState) => void) | undefined;
}

export function PlanSteps({ steps, onChange }: PlanStepsProps) {
  return (
    <ul class="plan-steps" role="list">
      {steps.map((step) => (
        <Step key={step.line} step={step} onChange={onChange} />
      ))}
    </ul>
  );
}

function Step({ step, onChange }: { step: PlanStep; onChange: PlanStepsProps["onChange"] }) {
  const { line, state, text, depth } = step;
  const change = (event: JSX.TargetedEvent<HTMLInputElement>) => onChange?.(step, event.currentTarget.checked ? "completed" : "pending");
  return (
    <li class={`plan-step ${state}`} style={{ "--depth": depth }}>
      <input
        type="checkbox"
        aria-labelledby={`plan-step-${line}`}
        aria-describedby={state === "in_progress" ? `plan-state-${line}` : undefined}
        disabled={!onChange}
        checked={state === "completed"}
        indeterminate={state === "in_progress"}
        onChange={change}
      />
      <div id={`plan-step-${line}`} class="plan-text">
        <Markdown key={text} text={text || "(no text)"} open={false} />
      </div>
      {state === "in_progress" && (
        <span id={`plan-state-${line}`} class="plan-state">
          in progress
        </span>
      )}
    </li>
  );
}
