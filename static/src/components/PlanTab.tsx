// Newest plan of the agent, its progress, and the user's edits.

import { useLayoutEffect, useRef } from "preact/hooks";
import { PlanEditor } from "../plan/PlanEditor";
import { isInWorkspace, planEditsOf } from "../plan/planEdits";
import { PlanSteps } from "../plan/PlanSteps";
import { planParts } from "../plan/planText";
import type { LiveSession } from "../state/liveSession";
import { EmptyState } from "./EmptyState";
import { ErrorNotice } from "./ErrorNotice";
import { pageSkeleton } from "./lazy";
import { Markdown } from "./Markdown";
import { TruncationNote } from "./TruncationNote";

export function PlanTab({ live }: { live: LiveSession }) {
  const { plan, agentState, connection } = live.state.value;
  const edits = planEditsOf(live.id);
  const editor = edits.editor.value;
  const editButton = useRef<HTMLButtonElement>(null);
  const wasEditing = useRef(false);

  // The editor had the focus.
  useLayoutEffect(() => {
    if (wasEditing.current && !editor) editButton.current?.focus();
    wasEditing.current = editor !== null;
  }, [editor]);

  if (!plan) {
    if (!live.isComplete) return pageSkeleton;
    return (
      <EmptyState icon="plan" title="No plan yet">
        The agent's plan for longer tasks appears here.
      </EmptyState>
    );
  }
  const canEdit = agentState !== "ended" && connection.phase !== "recorded" && isInWorkspace(plan);
  if (editor && canEdit) return <PlanEditor file={editor} onDone={() => edits.closeEditor()} />;

  const parts = planParts(edits.shown(plan));
  const steps = parts.flatMap((part) => (part.kind === "steps" ? part.steps : []));
  const done = steps.filter((step) => step.state === "completed").length;
  const canTick = canEdit && !plan.truncated;
  return (
    <div class="plan-tab" tabIndex={0} role="region" aria-label="Plan">
      <div class="plan-progress">
        {steps.length > 0 && <progress value={done} max={steps.length} aria-label="Steps done" />}
        {steps.length > 0 && (
          <span class="muted" role="status">
            {done} of {steps.length} done
          </span>
        )}
        {canEdit && (
          <button ref={editButton} type="button" class="button" onClick={() => edits.edit(plan)}>
            Edit
          </button>
        )}
      </div>
      {edits.problem.value && <ErrorNotice text={edits.problem.value} />}
      {parts.map((part) =>
        part.kind === "steps" ? (
          <PlanSteps
            key={part.steps[0]?.line}
            steps={part.steps}
            onChange={canTick ? (step, state) => void edits.setState(plan, step, state) : undefined}
          />
        ) : (
          <Markdown key={`${part.line} ${plan.key}`} text={part.text} open={false} />
        ),
      )}
      <TruncationNote truncated={plan.truncated} />
    </div>
  );
}
