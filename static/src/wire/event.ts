// Durable events of a session's journal, numbered without gaps.

export type EventOrigin = "user" | "agent" | "server";

/** State of the agent. */
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

/** Phase of a sandbox. */
export type SandboxPhase =
  | "pulling"
  | "creating"
  | "starting"
  | "connecting"
  | "ready"
  | "paused"
  | "stopped"
  | "lost"
  | "failed";

/** Delivery of a message sent while the agent works. */
export type MessageMode = "queue" | "steer" | "interrupt";

export type ApprovalDecision = "allow" | "allow_always" | "deny";

/** Marks `content` as partial. `href` leads to the whole. */
export interface Truncation {
  bytes: number;
  href?: string;
}

export interface QueuedMessage {
  item: string;
  content: string;
  attachments?: string[];
}

export interface PlanStep {
  text: string;
  done: boolean;
}

export interface UsageExtras {
  model: string;
  input_tokens: number;
  output_tokens: number;
  cost_usd: number | null;
  total_input_tokens: number;
  total_output_tokens: number;
  /** `null` if the price of any call so far is unknown. */
  total_cost_usd: number | null;
  /** Cost of the other calls in that case, from servers that report it. */
  known_cost_usd?: number | null;
  context_used: number;
  context_limit: number | null;
}

type NoArguments = Record<string, never>;

/** Arguments of each action. */
export interface ActionArguments {
  start: { task: string };
  message: { content: string; mode?: MessageMode; attachments?: string[] };
  run: { command: string };
  read: { path: string };
  write: { path: string; content: string };
  edit: { path: string; change: string; line?: number; end_line?: number; old?: string; lines?: string[] };
  browse: { url: string };
  think: { content: string };
  plan: { content: string };
  finish: { message?: string };
  confirm: { request: string; decision: ApprovalDecision; reason?: string };
  set_model: { model: string };
  interrupt: NoArguments;
  pause: NoArguments;
  resume: NoArguments;
  stop: NoArguments;
  end: NoArguments;
}

/** Extras of each observation. */
export interface ObservationExtras {
  run: { command: string; exit_code?: number; duration_ms: number; timed_out?: boolean; truncated?: Truncation };
  read: { path: string; truncated?: Truncation };
  write: { path: string; bytes: number };
  edit: { path: string; line: number; change: string; lines: string[]; diff: string };
  browse: { url: string; title?: string; screenshot?: string; truncated?: Truncation };
  chat: { attachments?: string[] };
  message: { partial?: boolean };
  think: { partial?: boolean };
  plan: { path: string; items: PlanStep[] };
  confirm: { request: string; action: string; risk: string; options: ApprovalDecision[] };
  confirmed: { request: string; decision: ApprovalDecision };
  usage: UsageExtras;
  /**
   * `turn_over`: the turn is over and the session is not idle. A user's command runs, or the
   * session was just paused.
   */
  agent_state_changed: { agent_state: AgentState; reason?: string; since: string; turn_over?: boolean };
  interrupted: { what: string; stopped_ms: number; rung: string; partial: boolean };
  queue: { items: QueuedMessage[] };
  sandbox: { phase: SandboxPhase; exit_code?: number; out_of_memory?: boolean; stderr_tail?: string; isolation?: string };
  error: { code: string; detail: string };
}

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
