// Newest plan of the agent and its progress.

import type { LiveSession } from "../state/liveSession";
import { EmptyState } from "./EmptyState";
import { pageSkeleton } from "./lazy";
import { Markdown } from "./Markdown";

export function PlanTab({ live }: { live: LiveSession }) {
  const { plan } = live.state.value;
  if (!plan) {
    if (!live.isComplete) return pageSkeleton;
    return (
      <EmptyState icon="plan" title="No plan yet">
        The agent's plan for longer tasks appears here.
      </EmptyState>
    );
  }
  const { items, markdown } = plan;
  const done = items.filter((item) => item.done).length;
  return (
    <div class="plan-tab" tabIndex={0} role="region" aria-label="Plan">
      {items.length > 0 && (
        <div class="plan-progress">
          <progress value={done} max={items.length} aria-label="Steps done" />
          <span class="muted">
            {done} of {items.length} done
          </span>
        </div>
      )}
      <Markdown key={plan.key} text={markdown} open={false} />
    </div>
  );
}
