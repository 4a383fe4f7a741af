// Status of a session: every surface that shows a session's state draws from it. Pure.

import type { AgentState } from "../wire/event";
import type { ConnectionState } from "./screenState";

export type StatusKind =
  | "unknown"
  | "starting"
  | "ready"
  | "turn_failed"
  | "budget_spent"
  | "quota_exceeded"
  | "working"
  | "waiting"
  | "interrupting"
  | "paused"
  | "stopped"
  | "failed"
  | "ended";

/** Source of a state: the server now, the server before the connection was lost, or a file. */
export type StatusSource = "server" | "away" | "recording";

/** Mark of the browser tab. */
export type TabMark = "waiting" | "working" | "failed" | null;

interface KindFacts {
  word: string;
  mark: TabMark;
  /** True if spinners turn and clocks run. */
  ticks?: boolean;
}

const KINDS: Record<StatusKind, KindFacts> = {
  unknown: { word: "connecting", mark: null },
  starting: { word: "starting", mark: "working", ticks: true },
  ready: { word: "ready", mark: null },
  turn_failed: { word: "failed", mark: "failed" },
  budget_spent: { word: "budget spent", mark: null },
  quota_exceeded: { word: "quota exceeded", mark: null },
  working: { word: "working", mark: "working", ticks: true },
  waiting: { word: "waiting for you", mark: "waiting", ticks: true },
  interrupting: { word: "interrupting", mark: "working", ticks: true },
  paused: { word: "paused", mark: null },
  stopped: { word: "stopped", mark: null },
  failed: { word: "failed", mark: "failed" },
  ended: { word: "ended", mark: null },
};

export interface SessionStatus {
  kind: StatusKind;
  source: StatusSource;
  /** Label for dots and lists. */
  label: string;
  mark: TabMark;
  /** True if spinners turn and clocks run. */
  isTicking: boolean;
  /** True from the failure of a turn until the next turn, also during the user's commands. */
  hasFailedTurn: boolean;
}

/** State and reason as REST, `hello` and the events report them. */
export interface ReportedState {
  state: AgentState | null;
  reason?: string | null | undefined;
}

export function statusOf({ state, reason }: ReportedState, source: StatusSource = "server"): SessionStatus {
  const kind = kindOf(state, reason);
  const { mark, ticks } = KINDS[kind];
  // A newer server may have further states.
  const word = kind === "unknown" && state !== null ? String(state) : KINDS[kind].word;
  const isNow = source === "server";
  return {
    kind,
    source,
    label: source === "away" && state !== null ? `last known: ${word}` : word,
    mark: isNow ? mark : null,
    isTicking: isNow && ticks === true,
    hasFailedTurn: reason === "failed" && state !== "failed",
  };
}

function kindOf(state: AgentState | null, reason: string | null | undefined): StatusKind {
  switch (state) {
    case "idle":
      if (reason === "failed") return "turn_failed";
      if (reason === "budget") return "budget_spent";
      return reason === "quota" ? "quota_exceeded" : "ready";
    case "running":
      return "working";
    case "awaiting_confirmation":
      return "waiting";
    case "starting":
    case "interrupting":
    case "paused":
    case "stopped":
    case "failed":
    case "ended":
      return state;
    case null:
      return "unknown";
  }
  return "unknown";
}

/** Returns the source of a screen's state. */
export function sourceOf({ phase }: ConnectionState): StatusSource {
  if (phase === "recorded") return "recording";
  return phase === "lost" || phase === "refused" ? "away" : "server";
}
