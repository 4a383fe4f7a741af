// State line: current activity of the session, the next action of the user, and the controls.
// Driven only by the server.

import type { AgentState, SandboxPhase } from "../wire/event";
import { capitalised, firstLine } from "../format";
import type { ChatRow } from "./rows";
import { isLossReported, unreadableReason, type ScreenState } from "./screenState";
import { sourceOf, statusOf, type SessionStatus } from "./sessionStatus";

export type ActivityTone = "quiet" | "busy" | "waiting" | "bad";

export interface SessionActivity {
  tone: ActivityTone;
  text: string;
  /** Code shown after the text. */
  code?: string;
  /** Start time, RFC 3339. A clock runs beside the text. */
  since?: string;
  /** Finished pauses since the start, in milliseconds. */
  pausedMs?: number | undefined;
  /** Next action, unless the message field already states it. */
  hint?: string;
}

const SANDBOX_TEXTS: Record<SandboxPhase, string | null> = {
  pulling: "Fetching the image",
  creating: "Creating the sandbox",
  starting: "Starting the sandbox",
  connecting: "Connecting to the agent",
  ready: null,
  paused: null,
  stopped: null,
  // Another start follows both.
  lost: null,
  failed: null,
};

export function isWorking(state: AgentState | null): boolean {
  return state === "running" || state === "awaiting_confirmation" || state === "interrupting";
}

/** Enters an agent state, reported by an event or by `hello`. */
export function enterState(draft: Pick<ScreenState, "agentState" | "isPausedMidTurn">, state: AgentState | null): void {
  draft.isPausedMidTurn = state === "paused" && (draft.isPausedMidTurn || isWorking(draft.agentState));
  draft.agentState = state;
}

/** Reports if an interrupt would stop something, including work paused mid-turn. */
export function isInterruptible({ agentState, isPausedMidTurn, rows, approvals }: ScreenState): boolean {
  return isWorking(agentState) || (agentState === "paused" && (isPausedMidTurn || approvals.length > 0 || rows.some(isOpen)));
}

/** Reports if a new message would be queued. A message wakes a resting session. */
export function isBusy(state: ScreenState): boolean {
  return isWorking(state.agentState) || isInterruptible(state);
}

/** Reports if something continues only after a Resume. */
export function isResumable({ agentState, queue }: ScreenState): boolean {
  if (agentState === "idle" || agentState === "failed") return queue.length > 0;
  return agentState === "paused" || agentState === "stopped";
}

/** Returns the status of a session's screen. */
export function statusOfScreen({ agentState: state, reason, connection }: ScreenState): SessionStatus {
  return statusOf({ state, reason }, sourceOf(connection));
}

/** Reports if a spent budget ended the last turn. */
export function isBudgetSpent(state: ScreenState): boolean {
  return statusOfScreen(state).kind === "budget_spent";
}

/** Requests that the session's controls offer. */
export interface OfferedControls {
  resume: boolean;
  pause: boolean;
  interrupt: boolean;
  /** True while the server is away. The controls keep their places. */
  isDisabled: boolean;
}

export function controlsOf(state: ScreenState): OfferedControls {
  return {
    resume: isResumable(state),
    pause: isWorking(state.agentState),
    interrupt: isInterruptible(state),
    isDisabled: statusOfScreen(state).source === "away",
  };
}

export function activityOf(state: ScreenState): SessionActivity {
  const status = statusOfScreen(state);
  const activity = currentActivity(state, status);
  if (status.source !== "away" || status.kind === "unknown") return activity;
  // Tone and hint keep their room, so nothing moves.
  return { tone: activity.tone, text: capitalised(status.label), hint: activity.hint };
}

function currentActivity(state: ScreenState, { kind }: SessionStatus): SessionActivity {
  switch (kind) {
    case "unknown":
      if (state.agentState !== null) return { tone: "quiet", text: String(state.agentState) };
      return unreadableReason(state) ? { tone: "bad", text: "Read-only" } : { tone: "quiet", text: "Connecting" };
    case "starting":
      return { tone: "busy", text: sandboxText(state) ?? "Starting", since: state.since ?? undefined };
    case "budget_spent":
      return { tone: "waiting", text: "Budget spent" };
    case "turn_failed":
      return { tone: "bad", text: "Last turn failed" };
    case "quota_exceeded":
      return { tone: "waiting", text: "Disk quota exceeded", ...(state.queue.length > 0 && { hint: "Resume or send a message to continue." }) };
    case "ready":
      return state.queue.length > 0
        ? { tone: "waiting", text: "Queue paused", hint: "Resume or send a message to continue." }
        : { tone: "quiet", text: "Ready" };
    case "working":
      return runningActivity(state);
    case "waiting":
      return { tone: "waiting", text: "Waiting for you", hint: "Answer the approval request to continue." };
    case "interrupting":
      return { tone: "busy", text: "Interrupting…", since: state.since ?? undefined };
    case "paused":
      return isInterruptible(state)
        ? { tone: "waiting", text: "Paused", hint: "Resume to continue." }
        : restingActivity(state, "quiet", "Paused", "Resume or send a message to continue.");
    case "stopped":
      return restingActivity(state, "quiet", "Sandbox stopped", "Resume or send a message to restart.");
    case "failed":
      return restingActivity(state, "bad", "Failed", `${isResumable(state) ? "Resume or message" : "Send a message"} to start a new sandbox.`);
    case "ended":
      return restingActivity(state, "quiet", "Ended");
  }
}

function runningActivity(state: ScreenState): SessionActivity {
  const starting = sandboxText(state);
  if (starting) return { tone: "busy", text: starting, since: state.since ?? undefined };
  const row = state.rows.findLast(isOpen);
  if (!row) return { tone: "busy", text: "Working", since: state.since ?? undefined };
  switch (row.kind) {
    case "text":
      return { tone: "busy", text: "Writing" };
    case "thinking":
      return { tone: "busy", text: "Thinking" };
    default:
      return row.name === null
        ? { tone: "busy", text: "Preparing the next step" }
        : { tone: "busy", ...toolText(row.name, row.args), since: row.at, pausedMs: row.pausedMs };
  }
}

type OpenRow = Extract<ChatRow, { kind: "text" | "thinking" | "tool" }>;

function isOpen(row: ChatRow): row is OpenRow {
  return row.kind === "tool" ? row.end === null : (row.kind === "text" || row.kind === "thinking") && row.open;
}

/** Returns a tool call as a verb and its object. */
export function toolText(name: string, args: Record<string, unknown>): { text: string; code?: string } {
  const of = (key: string) => (typeof args[key] === "string" ? firstLine(args[key]) : undefined);
  switch (name) {
    case "run":
      return { text: "Running", code: of("command") };
    case "read":
      return { text: "Reading", code: of("path") };
    case "write":
      return { text: "Writing", code: of("path") };
    case "edit":
      return { text: "Editing", code: of("path") };
    case "browse":
      return { text: "Opening", code: of("url") };
    default:
      return { text: "Using", code: name };
  }
}

function sandboxText(state: ScreenState): string | null {
  return state.sandbox ? SANDBOX_TEXTS[state.sandbox.phase] ?? null : null;
}

function restingActivity(state: ScreenState, tone: ActivityTone, text: string, hint?: string): SessionActivity {
  const isNews = state.reason && !isLossReported(state, state.reason);
  return { tone, text: isNews ? `${text}: ${state.reason}` : text, hint };
}
