// The state line: what the session does right now, in words, and what a person can do about it. Driven by the server only.

import type { AgentState, Phase } from "../wire/event";
import { firstLine } from "../format";
import type { Row } from "./rows";
import { isLossTold, whyUnreadable, type SessionState } from "./session";

export type Tone = "quiet" | "busy" | "waiting" | "bad";

export interface Activity {
  tone: Tone;
  text: string;
  /** Shown as code behind the text. */
  code?: string;
  /** When it began, RFC 3339; a clock runs beside it. */
  since?: string;
  /** What to do next, unless the field to write in says it already. */
  hint?: string;
}

const SANDBOX: Record<Phase, string | null> = {
  pulling: "Fetching the image",
  creating: "Creating the sandbox",
  starting: "Starting the sandbox",
  connecting: "Connecting to the agent",
  ready: null,
  paused: null,
  stopped: null,
  // What comes after them is another start.
  lost: null,
  failed: null,
};

export function isWorking(state: AgentState | null): boolean {
  return state === "running" || state === "awaiting_confirmation" || state === "interrupting";
}

/** It is in this state from now on, be it that an event says so or the server at a new connection. */
export function enter(draft: Pick<SessionState, "agentState" | "isFrozen">, state: AgentState | null): void {
  draft.isFrozen = state === "paused" && (draft.isFrozen || isWorking(draft.agentState));
  draft.agentState = state;
}

/** Whether there is something that an interrupt would stop: what is frozen in the middle, too. */
export function isStoppable({ agentState, isFrozen, rows, question }: SessionState): boolean {
  return isWorking(agentState) || (agentState === "paused" && (isFrozen || question !== null || rows.some(isOpen)));
}

/** Whether a message waits for its turn. What rests is woken by it. */
export function isOccupied(state: SessionState): boolean {
  return isWorking(state.agentState) || isStoppable(state);
}

/** Whether there is something to go on with that a person has to ask for. */
export function isResumable({ agentState, queue }: SessionState): boolean {
  if (agentState === "idle" || agentState === "failed") return queue.length > 0;
  return agentState === "paused" || agentState === "stopped";
}

export function activity(state: SessionState): Activity {
  switch (state.agentState) {
    case null:
      return whyUnreadable(state) ? { tone: "bad", text: "It can only be read" } : { tone: "quiet", text: "Connecting" };
    case "starting":
      return { tone: "busy", text: sandboxText(state) ?? "Starting", since: state.since ?? undefined };
    case "idle":
      return state.queue.length > 0
        ? { tone: "waiting", text: "Stopped", hint: "What waits is sent when you resume, or say something more." }
        : { tone: "quiet", text: "Ready" };
    case "running":
      return working(state);
    case "awaiting_confirmation":
      return { tone: "waiting", text: "Waiting for you", hint: "The agent asks before it goes on." };
    case "interrupting":
      return { tone: "busy", text: "Stopping…", since: state.since ?? undefined };
    case "paused":
      return isStoppable(state)
        ? { tone: "waiting", text: "Paused", hint: "Everything is frozen until you resume." }
        : ended(state, "quiet", "Paused", "Send a message, or resume, to go on.");
    case "stopped":
      return ended(state, "quiet", "Stopped", "Send a message, or resume, to bring it back.");
    case "failed":
      return ended(state, "bad", "Failed", `Send a message${isResumable(state) ? ", or resume," : ""} to try again in a fresh sandbox.`);
    case "ended":
      return ended(state, "quiet", "Ended");
  }
  // A state of a newer server.
  return { tone: "quiet", text: String(state.agentState) };
}

function working(state: SessionState): Activity {
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
        : { tone: "busy", ...toolText(row.name, row.args), since: row.at };
  }
}

type Open = Extract<Row, { kind: "text" | "thinking" | "tool" }>;

function isOpen(row: Row): row is Open {
  return row.kind === "tool" ? row.end === null : (row.kind === "text" || row.kind === "thinking") && row.open;
}

/** What a tool call does, as a verb and its object. */
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

function sandboxText(state: SessionState): string | null {
  return state.sandbox ? SANDBOX[state.sandbox.phase] ?? null : null;
}

function ended(state: SessionState, tone: Tone, text: string, hint?: string): Activity {
  const isNews = state.reason && !isLossTold(state, state.reason);
  return { tone, text: isNews ? `${text}: ${state.reason}` : text, hint };
}

/** A word for a state, for dots and lists. */
export const STATE_WORDS: Record<AgentState, string> = {
  starting: "starting",
  idle: "ready",
  running: "working",
  awaiting_confirmation: "waiting for you",
  interrupting: "stopping",
  paused: "paused",
  stopped: "stopped",
  failed: "failed",
  ended: "ended",
};
