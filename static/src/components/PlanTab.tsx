// The agent's newest plan, and how far it has come.

import type { LiveSession } from "../state/live";
import { Empty } from "./Empty";
import { pageSkeleton } from "./lazy";
import { Markdown } from "./Markdown";

export function PlanTab({ live }: { live: LiveSession }) {
  const { plan } = live.state.value;
  if (!plan) {
    if (!live.isWhole) return pageSkeleton;
    return (
      <Empty icon="plan" title="No plan yet">
        For work of several steps the agent writes a plan. It stands here, and its boxes are ticked as it goes.
      </Empty>
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
