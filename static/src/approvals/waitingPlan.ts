// Plan that waits for its approval, from the rows of the conversation. Pure.

import type { PlanRow } from "../state/rows";
import type { ScreenState } from "../state/screenState";

/** Message that starts the work on an approved plan. */
export const APPROVAL_MESSAGE = "The plan is approved. Carry it out.";

/** Returns the plan with which the last turn ended, if it waits for an approval. */
export function waitingPlan({ mode, ended, plan, rows, agentState, connection, queue, pending }: ScreenState): PlanRow | null {
  const isResting = (agentState === "idle" || agentState === "stopped") && connection.phase === "live" && queue.length === 0;
  if (mode !== "plan" || !isResting || plan === null || ended?.outcome !== "finished") return null;
  const isAnswered = pending.some(({ request, rejection }) => rejection === undefined && (request.action === "set_mode" || request.action === "message"));
  if (isAnswered) return null;
  const end = rows.findLastIndex((row) => row.key === ended.key);
  const begin = rows.findLastIndex((row, at) => at < end && row.kind === "turn");
  const place = rows.findLastIndex((row) => row.key === plan.key);
  // The user may have corrected the plan since.
  return place > begin && (place < end || plan.byUser) ? plan : null;
}
