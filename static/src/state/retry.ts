// Waits of a model call for its next attempt, and the way out of a turn that failed.

import type { RetryFrame } from "../wire/frame";
import type { ScreenState } from "./screenState";

/** Message that continues a turn whose work so far stands. */
const CONTINUE = "Continue.";

/** Returns the line for a wait. */
export function retryText({ provider, attempt, max_attempts }: RetryFrame): string {
  return `Waiting for ${provider}, attempt ${attempt} of ${max_attempts}…`;
}

/** Message that repeats a turn. */
export interface RetryMessage {
  text: string;
  attachments: readonly string[];
}

/**
 * Returns the message that repeats the turn which just failed at a model call. `null`: no turn
 * failed, or a later one began. After work of the agent, the message asks to continue.
 */
export function retryMessage({ rows, agentState, connection, pending }: ScreenState): RetryMessage | null {
  const last = rows.at(-1);
  const isFailed = last?.kind === "notice" && last.isModelError === true;
  if (!isFailed || agentState !== "idle" || connection.phase !== "live" || pending.length > 0) return null;
  const sent = rows.findLast((row) => row.kind === "user" || row.kind === "tool" || row.kind === "text");
  if (sent?.kind === "user") return { text: sent.text, attachments: sent.attachments };
  return sent ? { text: CONTINUE, attachments: [] } : null;
}
