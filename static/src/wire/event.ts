// Durable events as they stand in a session's journal: numbered without gaps, replayed for ever.

export type Source = "user" | "agent" | "server";

/** Whose turn it is. */
export type AgentState =
  | "starting"
  | "idle"
  | "running"
  | "awaiting_confirmation"
  | "interrupting"
  | "paused"
  | "stopped"
  | "failed"
  | "ended";

/** What a sandbox is going through. */
export type Phase =
  | "pulling"
  | "creating"
  | "starting"
  | "connecting"
  | "ready"
  | "paused"
  | "stopped"
  | "lost"
  | "failed";

/** When a message that comes while the agent works reaches it. */
export type Mode = "queue" | "steer" | "interrupt";

export type Decision = "allow" | "allow_always" | "deny";

/** Says that `content` is only a part; `href` is where the whole is. */
export interface Truncated {
  bytes: number;
  href?: string;
}

export interface QueueItem {
  item: string;
  content: string;
  attachments?: string[];
}

export interface PlanItem {
  text: string;
  done: boolean;
}

export interface Usage {
  model: string;
  input_tokens: number;
  output_tokens: number;
  cost_usd: number | null;
  total_input_tokens: number;
  total_output_tokens: number;
  /** `null` where the price of any call so far is not known. */
  total_cost_usd: number | null;
  /** What the others have cost then, from servers that say so. */
  known_cost_usd?: number | null;
  context_used: number;
  context_limit: number | null;
}

type Nothing = Record<string, never>;

/** The arguments of each action. */
export interface Actions {
  start: { task: string };
  message: { content: string; mode?: Mode; attachments?: string[] };
  run: { command: string };
  read: { path: string };
  write: { path: string; content: string };
  edit: { path: string; change: string; line?: number; end_line?: number; old?: string; lines?: string[] };
  browse: { url: string };
  think: { content: string };
  plan: { content: string };
  finish: { message?: string };
  confirm: { request: string; decision: Decision; reason?: string };
  set_model: { model: string };
  interrupt: Nothing;
  pause: Nothing;
  resume: Nothing;
  stop: Nothing;
  end: Nothing;
}

/** The extras of each observation. */
export interface Observations {
  run: { command: string; exit_code?: number; duration_ms: number; timed_out?: boolean; truncated?: Truncated };
  read: { path: string; truncated?: Truncated };
  write: { path: string; bytes: number };
  edit: { path: string; line: number; change: string; lines: string[]; diff: string };
  browse: { url: string; title?: string; screenshot?: string; truncated?: Truncated };
  chat: { attachments?: string[] };
  message: { partial?: boolean };
  think: { partial?: boolean };
  plan: { path: string; items: PlanItem[] };
  confirm: { request: string; action: string; risk: string; options: Decision[] };
  confirmed: { request: string; decision: Decision };
  usage: Usage;
  /** `turn_over`: the agent's turn is, and the session is not idle for it: a command of the user's runs, or it was just paused. */
  agent_state_changed: { agent_state: AgentState; reason?: string; since: string; turn_over?: boolean };
  interrupted: { what: string; stopped_ms: number; rung: string; partial: boolean };
  queue: { items: QueueItem[] };
  sandbox: { phase: Phase; exit_code?: number; out_of_memory?: boolean; stderr_tail?: string; isolation?: string };
  error: { code: string; detail: string };
}

interface Base {
  seq: number;
  at: string;
  source: Source;
  /** The `seq` of the event that led to this one. */
  cause?: number;
  /** Ties deltas, an action and its result together. */
  item?: string;
  /** One line for a person. */
  message?: string;
}

export interface ActionEvent<K extends keyof Actions = keyof Actions> extends Base {
  action: K;
  args: Actions[K];
}

export interface ObservationEvent<K extends keyof Observations = keyof Observations> extends Base {
  observation: K;
  content: string;
  extras: Observations[K];
}

/** The kinds are those that this version knows; at run time a newer server may send others. */
export type Event = ActionEvent | ObservationEvent;
