// Waits of a model call for its next attempt, and the message that repeats a turn.

import { computed } from "@preact/signals";
import type { RetryFrame } from "../wire/frame";
import { currentLive } from "./currentSession";
import { isInFlight, type ScreenState } from "./screenState";
import type { EndedTurn } from "./turns";

/** Returns the line for a wait. */
export function retryText({ provider, attempt, max_attempts }: RetryFrame): string {
  return `Waiting for ${provider}, attempt ${attempt} of ${max_attempts}…`;
}

/**
 * Returns the turn that a retry repeats: the last one, while nothing runs or waits. `null` in a
 * recording, and while the server is away.
 */
export function retriableTurn({ ended, agentState, connection, pending, queue }: ScreenState): EndedTurn | null {
  const isResting = agentState === "idle" || agentState === "failed" || agentState === "stopped";
  if (!isResting || connection.phase !== "live" || queue.length > 0) return null;
  return pending.some((sent) => sent.request.action === "message" && (isInFlight(sent) || sent.seq !== undefined)) ? null : ended;
}

/** Key of the row whose turn can be repeated. */
export const retriableRow = computed(() => {
  const live = currentLive.value;
  return live ? (retriableTurn(live.state.value)?.key ?? null) : null;
});
