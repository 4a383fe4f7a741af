// Durable events of a session's journal, numbered without gaps. The server's code declares the
// kinds.

import type { Action, EventSource, ModelUsage, ObservationKind, RiskAssessment } from "./generated/types";

export type {
  AgentState,
  ApprovalChoice,
  ApprovalDecision,
  ApprovalMode,
  EffortChoice,
  LeftoverProcess,
  MessageMode,
  PlanItem,
  QueueItem,
  ReasoningEffort,
  RiskAssessment,
  RiskLevel,
  SandboxPhase,
  ToolFileChange,
  ToolKind,
  ToolLocation,
  ToolStatus,
  TruncationMark,
  WorkspaceChanges,
  WorkspaceCheckpoint,
} from "./generated/types";

/** Sender of an event. */
export type EventOrigin = EventSource;

/**
 * Usage of a call. `known_cost_usd` is the cost of the other calls if a price is unknown. An
 * `estimated` usage was not reported by the provider.
 */
export type UsageExtras = ModelUsage & { known_cost_usd?: number | null; estimated?: boolean };

/** Arguments of each action. */
export type ActionArguments = { [A in Action as A["action"]]: A["args"] };

/** Extras of each observation. */
export type ObservationExtras = {
  [O in ObservationKind as O["observation"]]: O["observation"] extends "usage" ? UsageExtras : O["extras"];
};

interface EventHeader {
  seq: number;
  at: string;
  source: EventOrigin;
  /** `seq` of the event that caused this one. */
  cause?: number;
  /** Ties deltas, an action and its result together. */
  item?: string;
  /** Summary line for the user. */
  message?: string;
  /** Possible harm of a tool call, set by the server. Of unchecked shape. */
  risk?: RiskAssessment;
}

export interface ActionEvent<K extends keyof ActionArguments = keyof ActionArguments> extends EventHeader {
  action: K;
  args: ActionArguments[K];
}

export interface ObservationEvent<K extends keyof ObservationExtras = keyof ObservationExtras> extends EventHeader {
  observation: K;
  content: string;
  extras: ObservationExtras[K];
}

/** Event of a kind known to this version. A newer server may send other kinds at run time. */
export type SessionEvent = ActionEvent | ObservationEvent;
