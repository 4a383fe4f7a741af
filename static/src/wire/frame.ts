// The frames of the session socket, both ways.

import type { AgentState, Decision, Event, Mode } from "./event";

/** A session as REST and `hello` show it. */
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
    /** Where the price of a call is not known: what the others cost. */
    known_cost_usd?: number;
  } | null;
  budget_usd?: number | null;
  archived?: boolean;
}

export type DeltaKind = "text" | "thinking" | "tool_input" | "output";

/** A piece of an item that is still growing. */
export interface Delta {
  delta: DeltaKind;
  item: string;
  /** Where `content` begins, in bytes of UTF-8. 0 means: forget what you had. */
  offset: number;
  content: string;
}

/** About this connection alone. */
export type Status =
  | { status: "hello"; session: Session | null; last_seq: number; state: AgentState | null }
  | { status: "synced"; seq: number }
  | { status: "accepted"; id: string; seq?: number }
  | { status: "pong" }
  | { status: "closing"; reason: string };

export interface ErrorFrame {
  error: { code: string; message: string };
  id?: string;
}

export type ServerFrame = Event | Delta | Status | ErrorFrame;

/** Only events say who speaks. An agent may put fields into an event of its own kind, and must not make another frame of it. */
export function isEvent(frame: object): frame is Event {
  return "seq" in frame && "source" in frame;
}

/** What this client asks for. */
export type Wish =
  | { action: "message"; args: { content: string; mode: Mode; attachments?: string[] } }
  | { action: "run"; args: { command: string } }
  | { action: "set_model"; args: { model: string } }
  | { action: "confirm"; args: { request: string; decision: Decision; reason?: string } }
  | { action: "edit_queue"; args: { item: string; content?: string; remove?: boolean } }
  | { action: "interrupt" | "pause" | "resume" | "stop" | "end" | "ping" };
