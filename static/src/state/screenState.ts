// What the screen knows of one session. Made from frames alone, by `reduce`.

import type { AgentState, Phase, QueueItem, Usage } from "../wire/event";
import type { Session, Wish } from "../wire/frame";
import type { Refusal } from "../wire/socket";
import type { PlanRow, Question, Row } from "./rows";

/** A wish on its way to the server. */
export interface Sent {
  id: string;
  wish: Wish;
  /** The event that it led to, once the server has said so. */
  seq?: number;
  /** Why the server did not carry it out, or why it was not sent. */
  refusal?: string;
}

/** Whether nothing has come of it yet. */
export function isOnItsWay({ seq, refusal }: Sent): boolean {
  return seq === undefined && refusal === undefined;
}

export type Connection =
  | { phase: "connecting" }
  | { phase: "replaying" }
  | { phase: "live" }
  | { phase: "lost"; retryAt: number }
  /** Nobody is at the other end: these frames come from a file. */
  | { phase: "recorded" }
  | { phase: "refused"; why: Refusal };

export interface Sandbox {
  phase: Phase;
  /** The event that said so: what it cut short names it as its cause. */
  seq: number;
  /** Why, in the server's words. */
  why: string;
}

export interface SessionState {
  connection: Connection;
  /** How many times this screen has been connected. */
  connections: number;
  /** What the last reconnect brought; `at` is how often there was one, so that the same count shows again. */
  caughtUp: { events: number; at: number } | null;
  /** What the server cannot do at the moment, in its words; until something happens again. */
  trouble: string | null;
  session: Session | null;
  lastSeq: number;
  /** When that event was made, as it says it. */
  lastAt: string;
  /** `lastSeq` when the replay that runs now began. */
  replayFrom: number;
  agentState: AgentState | null;
  reason: string | null;
  since: string | null;
  /** Whether it was paused in the middle of something. */
  isFrozen: boolean;
  rows: Row[];
  queue: QueueItem[];
  sending: Sent[];
  question: Question | null;
  usage: Usage | null;
  /** The most that its events have told of its cost, in USD: an event that does not know all of it takes nothing back. */
  knownCost: number;
  model: string | null;
  sandbox: Sandbox | null;
  isolation: string | null;
  /** The newest plan. */
  plan: PlanRow | null;
  /** What a screen reader shall say, once each: the newest finished texts, questions and receipts that came live. */
  spoken: readonly Spoken[];
}

export interface Spoken {
  seq: number;
  text: string;
}

export const empty: SessionState = {
  connection: { phase: "connecting" },
  connections: 0,
  caughtUp: null,
  trouble: null,
  session: null,
  lastSeq: 0,
  lastAt: "",
  replayFrom: 0,
  agentState: null,
  reason: null,
  since: null,
  isFrozen: false,
  rows: [],
  queue: [],
  sending: [],
  question: null,
  usage: null,
  knownCost: 0,
  model: null,
  sandbox: null,
  isolation: null,
  plan: null,
  spoken: [],
};

/** Why nobody goes on with it, where that is so: all that is asked of it now is refused with these words. */
export function whyUnreadable({ connection, trouble }: SessionState): string | undefined {
  return connection.phase === "refused" && connection.why === "unreadable" ? (trouble ?? "this session cannot go on") : undefined;
}

/** Whether it has failed because its sandbox is gone, which the conversation tells already. */
export function isLossTold({ sandbox }: SessionState, reason: string | null | undefined): boolean {
  return sandbox?.phase === "lost" && sandbox.why === reason;
}

/** What became of a message that has left the queue: the agent has it, or somebody took it away. */
export type Fate = "taken" | "removed";

export function fateOf({ rows }: SessionState, item: string): Fate {
  return rows.some((row) => row.kind === "user" && row.item === item && row.phase === "delivered") ? "taken" : "removed";
}

/** What is said to somebody who was about to change it; their words follow. */
export const FATES: Record<Fate, string> = {
  taken: "The agent has taken this message as it was. Your change:",
  removed: "This message was removed from the queue. Your change:",
};

/** What it has cost so far, in USD. */
export interface Spent {
  usd: number;
  /** Not where the price of a call is not known: then it has cost more. */
  isAll: boolean;
}

/** What a session's own figures say. */
export function spentBy(usage: Session["usage"]): Spent {
  return { usd: usage?.cost_usd ?? usage?.known_cost_usd ?? 0, isAll: !usage || usage.cost_usd !== null };
}

/** `told`: the session as REST told it last, which knows what an event without a price does not say. */
export function spent({ usage, session, knownCost }: SessionState, told?: Session): Spent {
  if (typeof usage?.total_cost_usd === "number") return { usd: usage.total_cost_usd, isAll: true };
  const views = [spentBy(session?.usage), spentBy(told?.usage)];
  return { usd: Math.max(knownCost, ...views.map(({ usd }) => usd)), isAll: !usage && views.every(({ isAll }) => isAll) };
}

/** The tokens that its model has read and written, and what it has cost. */
export function takenBy(state: SessionState, told?: Session): { read: number; written: number; cost: Spent } {
  const { usage, session } = state;
  return {
    read: usage?.total_input_tokens ?? session?.usage?.input_tokens ?? 0,
    written: usage?.total_output_tokens ?? session?.usage?.output_tokens ?? 0,
    cost: spent(state, told),
  };
}
