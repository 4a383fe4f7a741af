// Screen state of one session. Built from frames by `reduce`.

import type { AgentState, ApprovalMode, LeftoverProcess, SandboxPhase, QueueItem, ReasoningEffort, UsageExtras } from "../wire/event";
import type { Session, ClientRequest, RetryFrame } from "../wire/frame";
import type { SocketEndReason } from "../wire/socket";
import type { PlanRow, ApprovalRequest, TakenDecision, ChatRow } from "./rows";
import type { EndedTurn, RunningTurn } from "./turns";

/** Request sent by this client and not yet accepted. */
export interface PendingRequest {
  id: string;
  request: ClientRequest;
  /** Resulting event, once reported. */
  seq?: number;
  /** Error text of the server, or the reason for not sending. */
  rejection?: string;
}

/** Reports if no reply has arrived yet. */
export function isInFlight({ seq, rejection }: PendingRequest): boolean {
  return seq === undefined && rejection === undefined;
}

export type ConnectionState =
  | { phase: "connecting" }
  | { phase: "replaying" }
  | { phase: "live" }
  | { phase: "lost"; retryAt: number }
  /** Frames from a file, without a server. */
  | { phase: "recorded" }
  | { phase: "refused"; why: SocketEndReason };

export interface SandboxStatus {
  phase: SandboxPhase;
  /** Event of this phase. Cut work names it as its cause. */
  seq: number;
  /** Reason in the server's words. */
  reason: string;
}

export interface ScreenState {
  connection: ConnectionState;
  /** Number of connections of this screen. */
  connections: number;
  /** Result of the last reconnect. `at` numbers the reconnects, so an equal count shows again. */
  caughtUp: { events: number; at: number } | null;
  /** Current problem of the server in its words, until the next event. */
  problem: string | null;
  session: Session | null;
  lastSeq: number;
  /** Time of that event, from the event itself. */
  lastAt: string;
  /** `lastSeq` at the start of the current replay. */
  replayFrom: number;
  agentState: AgentState | null;
  reason: string | null;
  since: string | null;
  /** True if paused in the middle of work. */
  isPausedMidTurn: boolean;
  /** Start of the current pause. */
  pausedAt: string | null;
  turn: RunningTurn | null;
  /** Last turn, while a retry may repeat it: until the next message. */
  ended: EndedTurn | null;
  rows: ChatRow[];
  queue: QueueItem[];
  pending: PendingRequest[];
  /** Open requests, oldest first. */
  approvals: readonly ApprovalRequest[];
  /** Newest decisions. One about a call precedes the call if the policy denied it. */
  decisions: readonly TakenDecision[];
  mode: ApprovalMode | null;
  /** Wait of a model call for its next attempt. */
  retry: RetryFrame | null;
  usage: UsageExtras | null;
  /** Highest cost reported by events, in USD. Events without a known price never lower it. */
  knownCost: number;
  /** True if an event reported an estimated usage. */
  isEstimated: boolean;
  model: string | null;
  /** Reasoning effort. `null`: the model's own. `undefined`: not known yet. */
  effort: ReasoningEffort | null | undefined;
  sandbox: SandboxStatus | null;
  isolation: string | null;
  /** Processes that commands left behind, as last reported. */
  leftovers: LeftoverList | null;
  /** Newest plan. */
  plan: PlanRow | null;
  /**
   * Texts for screen readers: newest live messages, approval requests and receipts. Each is
   * announced once.
   */
  announcements: readonly Announcement[];
}

export interface LeftoverList {
  items: readonly LeftoverProcess[];
  /** Number of processes beyond `items`. */
  more: number;
  /** Time of the report, from which the ages count. */
  at: string;
}

export interface Announcement {
  seq: number;
  text: string;
}

export const emptyState: ScreenState = {
  connection: { phase: "connecting" },
  connections: 0,
  caughtUp: null,
  problem: null,
  session: null,
  lastSeq: 0,
  lastAt: "",
  replayFrom: 0,
  agentState: null,
  reason: null,
  since: null,
  isPausedMidTurn: false,
  pausedAt: null,
  turn: null,
  ended: null,
  rows: [],
  queue: [],
  pending: [],
  approvals: [],
  decisions: [],
  mode: null,
  retry: null,
  usage: null,
  knownCost: 0,
  isEstimated: false,
  model: null,
  effort: undefined,
  sandbox: null,
  isolation: null,
  leftovers: null,
  plan: null,
  announcements: [],
};

/** Returns the error of an unreadable session. All requests are rejected with it. */
export function unreadableReason({ connection, problem }: ScreenState): string | undefined {
  return connection.phase === "refused" && connection.why === "unreadable" ? (problem ?? "this session cannot continue") : undefined;
}

/** Reports if the failure is a lost sandbox that the chat already shows. */
export function isLossReported({ sandbox }: ScreenState, reason: string | null | undefined): boolean {
  return sandbox?.phase === "lost" && sandbox.reason === reason;
}

/** Fate of a message that left the queue: delivered to the agent, or removed. */
export type QueueExit = "taken" | "removed";

export function queueExitOf({ rows }: ScreenState, item: string): QueueExit {
  return rows.some((row) => row.kind === "user" && row.item === item && row.phase === "delivered") ? "taken" : "removed";
}

/** Text for a user who was editing the message. The edit follows. */
export const QUEUE_EXIT_TEXTS: Record<QueueExit, string> = {
  taken: "The agent already received this message. Your edit:",
  removed: "This message was removed. Your edit:",
};

/** Cost so far, in USD. */
export interface SpentCost {
  usd: number;
  /** False if the price of a call is unknown. The real cost is higher then. */
  isComplete: boolean;
  /** True if the usage of a call is an estimate. */
  isEstimated: boolean;
}

/** Returns the cost from a session's own figures. */
export function costOfSession(usage: Session["usage"]): SpentCost {
  const isComplete = !usage || usage.cost_usd !== null;
  return { usd: usage?.cost_usd ?? usage?.known_cost_usd ?? 0, isComplete, isEstimated: usage?.estimated === true };
}

/**
 * Returns the cost on the screen. `listed`: session from REST, which covers events without a price.
 */
export function costOfScreen({ usage, session, knownCost, isEstimated: isMarked }: ScreenState, listed?: Session): SpentCost {
  const views = [costOfSession(session?.usage), costOfSession(listed?.usage)];
  const isEstimated = isMarked || views.some((view) => view.isEstimated);
  if (typeof usage?.total_cost_usd === "number") return { usd: usage.total_cost_usd, isComplete: true, isEstimated };
  const isComplete = !usage && views.every((view) => view.isComplete);
  return { usd: Math.max(knownCost, ...views.map(({ usd }) => usd)), isComplete, isEstimated };
}

/** Returns the tokens read and written, and the cost. */
export function usageTotals(state: ScreenState, listed?: Session): { read: number; written: number; cost: SpentCost } {
  const { usage, session } = state;
  return {
    read: usage?.total_input_tokens ?? session?.usage?.input_tokens ?? 0,
    written: usage?.total_output_tokens ?? session?.usage?.output_tokens ?? 0,
    cost: costOfScreen(state, listed),
  };
}
