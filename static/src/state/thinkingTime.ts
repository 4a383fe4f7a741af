// Duration of thinking. The journal has only its end, so the step before it is its beginning.

import type { ChatRow } from "./rows";
import type { ScreenState } from "./screenState";

/**
 * Returns the time from the agent's last step to the end of its thinking, in milliseconds. Time
 * before the turn or before a resume does not count. Computed from events alone, so a recording
 * shows the same.
 */
export function thinkingTime({ rows, since, pausedAt }: Pick<ScreenState, "rows" | "since" | "pausedAt">, end: string): number | undefined {
  const started = pausedAt === null && since !== null ? Date.parse(since) : NaN;
  let stepped = NaN;
  for (let n = rows.length - 1; n >= 0 && Number.isNaN(stepped); n -= 1) stepped = stepEnd(rows[n]!);
  const begin = Math.max(...[started, stepped].filter((time) => !Number.isNaN(time)));
  const ms = Date.parse(end) - begin;
  return Number.isFinite(ms) && ms >= 0 ? ms : undefined;
}

/** Returns the end of a step of the turn. NaN: the row is no such step, or is not finished. */
function stepEnd(row: ChatRow): number {
  switch (row.kind) {
    case "tool":
      return row.source === "agent" && row.end ? Date.parse(row.end.at) : NaN;
    case "text":
    case "thinking":
      return row.open || row.at === undefined ? NaN : Date.parse(row.at);
    case "user":
      return row.phase === "delivered" ? Date.parse(row.at) : NaN;
    case "plan":
    case "summary":
      return Date.parse(row.at);
    case "notice":
    case "turn":
      return NaN;
  }
}
