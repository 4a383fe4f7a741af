// Frames of the session socket, both ways.

import type { AgentState, ApprovalDecision, SessionEvent, MessageMode } from "./event";

/** Session as sent by REST and `hello`. */
export interface Session {
  id: string;
  title: string;
  state: AgentState;
  reason?: string | null;
  agent?: string | null;
  model?: string | null;
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
  } | null;
  budget_usd?: number | null;
  archived?: boolean;
}

export type DeltaKind = "text" | "thinking" | "tool_input" | "output";

/** Piece of an item that still grows. */
export interface DeltaFrame {
  delta: DeltaKind;
  item: string;
  /** Position of `content` in bytes of UTF-8. 0 restarts the item. */
  offset: number;
  content: string;
}

/** Frame about this connection only. */
export type StatusFrame =
  | { status: "hello"; session: Session | null; last_seq: number; state: AgentState | null }
  | { status: "synced"; seq: number }
  | { status: "accepted"; id: string; seq?: number }
  | { status: "pong" }
  | { status: "closing"; reason: string };

export interface ErrorFrame {
  error: { code: string; message: string };
  id?: string;
}

export type ServerFrame = SessionEvent | DeltaFrame | StatusFrame | ErrorFrame;

/**
 * Detects an event: only events name a source. Fields added by an agent must not turn an event into
 * another frame.
 */
export function isEvent(frame: object): frame is SessionEvent {
  return "seq" in frame && "source" in frame;
}

/** Request of this client. */
export type ClientRequest =
  | { action: "message"; args: { content: string; mode: MessageMode; attachments?: string[] } }
  | { action: "run"; args: { command: string } }
  | { action: "set_model"; args: { model: string } }
  | { action: "confirm"; args: { request: string; decision: ApprovalDecision; reason?: string } }
  | { action: "edit_queue"; args: { item: string; content?: string; remove?: boolean } }
  | { action: "interrupt" | "pause" | "resume" | "stop" | "end" | "ping" };
