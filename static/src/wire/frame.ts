// Frames of the session socket, both ways.

import type { AgentState, ApprovalMode, ReasoningEffort, SessionEvent } from "./event";
import type { ClientRequest as GeneratedRequest, Delta, ErrorFrame, RetryFrame, StatusFrame as GeneratedStatusFrame } from "./generated/types";

export type { Delta as DeltaFrame, DeltaKind, ErrorFrame, RetryFrame } from "./generated/types";

/** Session as sent by REST and `hello`. */
export interface Session {
  id: string;
  title: string;
  state: AgentState;
  reason?: string | null;
  agent?: string | null;
  model?: string | null;
  /** `null`: the model's own default. */
  effort?: ReasoningEffort | null;
  /** Absent on servers of earlier versions. */
  mode?: ApprovalMode | null;
  /** Name of the security analyzer. */
  analyzer?: string | null;
  image?: string | null;
  sandbox?: string | null;
  created_at: string;
  updated_at: string;
  last_seq: number;
  attached?: number;
  usage?: {
    input_tokens: number;
    output_tokens: number;
    cost_usd: number | null;
    /** Cost of the other calls if the price of one is unknown. */
    known_cost_usd?: number;
    /** True if the usage of a call is an estimate. */
    estimated?: boolean;
  } | null;
  budget_usd?: number | null;
  archived?: boolean;
  /** Session that this one was forked from, and its newest event that both have. */
  parent?: { id: string; seq: number } | null;
  /** Newest message, command or failure in one line of plain text. */
  latest?: string | null;
  /** Number of the event that `latest` describes. */
  latest_seq?: number | null;
  /** Cloned repository. `null`: the workspace began empty, or the server is older. */
  repository?: SessionRepository | null;
}

/** Repository of a session. `commit` and `branch` are known once it is cloned. */
export interface SessionRepository {
  url: string;
  ref?: string | null;
  commit?: string | null;
  branch?: string | null;
}

/** Frame about this connection only. */
export type StatusFrame =
  | Exclude<GeneratedStatusFrame, { status: "hello" }>
  | (Omit<Extract<GeneratedStatusFrame, { status: "hello" }>, "session" | "now"> & {
      session: Session | null;
      /** Server's clock. Absent in recordings of earlier versions. */
      now?: string;
    });

export type ServerFrame = SessionEvent | Delta | RetryFrame | StatusFrame | ErrorFrame;

/**
 * Detects an event: only events name a source. Fields added by an agent must not turn an event into
 * another frame.
 */
export function isEvent(frame: object): frame is SessionEvent {
  return "seq" in frame && "source" in frame;
}

/** A request without arguments has no `args`. */
type Sent<R> = R extends { action: infer A; args: infer T } ? (symbol extends keyof T ? { action: A } : R) : never;

/** Request of a client. */
export type ClientRequest = Sent<GeneratedRequest>;
