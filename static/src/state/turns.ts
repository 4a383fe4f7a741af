// Turns: their ends as rows of the conversation, and the pauses that their durations leave out.

import type { AgentState, ObservationEvent, UsageExtras } from "../wire/event";
import type { TurnOutcome, TurnRow, UserRow } from "./rows";
import { findRow, putRow, type ScreenDraft } from "./screenDraft";
import type { SpentCost } from "./screenState";

/** Message with its files, as a retry sends it again. */
export interface TurnRequest {
  text: string;
  attachments: readonly string[];
}

/** Turn in progress. */
export interface RunningTurn {
  key: string;
  /** Name on the wire. Absent in journals of earlier versions. */
  id: string | undefined;
  request: TurnRequest;
  at: string;
  /** Finished pauses during the turn, in milliseconds. */
  pausedMs: number;
  cost: SpentCost | null;
  /** Newest message of the agent. */
  answer: string;
  /** True from an error until the agent goes on. */
  hasFailed: boolean;
  isInterrupted: boolean;
}

/** Turn that ended, until the next message. */
export interface EndedTurn {
  /** Key of its row. */
  key: string;
  outcome: TurnOutcome;
  request: TurnRequest;
}

/** Work with its start, and its finished pauses in milliseconds. */
interface TimedWork {
  at?: string;
  pausedMs?: number;
}

/** Returns the time of work until a moment without pauses, in milliseconds. */
export function workedMs(draft: ScreenDraft, work: TimedWork, until: string): number {
  return Math.max(0, span(work.at ?? until, until) - pausedUntil(draft, work, until));
}

function pausedUntil({ pausedAt }: ScreenDraft, { at = "", pausedMs = 0 }: TimedWork, until: string): number {
  return pausedMs + (pausedAt === null ? 0 : span(at > pausedAt ? at : pausedAt, until));
}

function span(from: string, to: string): number {
  return Math.max(0, Date.parse(to) - Date.parse(from)) || 0;
}

/** Notes a pause that begins or ends with a state. The end counts for all open work. */
export function trackPause(draft: ScreenDraft, state: AgentState, at: string): void {
  if (state === "paused") draft.pausedAt ??= at;
  else if (draft.pausedAt !== null) {
    const { turn } = draft;
    if (turn) draft.turn = { ...turn, pausedMs: pausedUntil(draft, turn, at) };
    draft.rows = draft.rows.map((row) => (row.kind === "tool" && row.end === null ? { ...row, pausedMs: pausedUntil(draft, row, at) } : row));
    draft.pausedAt = null;
  }
}

/** Begins the turn of a delivered message, unless the message steers the running turn. */
export function beginTurn(draft: ScreenDraft, event: ObservationEvent<"chat">, sent: UserRow | undefined, request: TurnRequest): void {
  const { turn: id } = event.extras;
  const { turn } = draft;
  if (turn && (id === undefined || turn.id === undefined ? sent?.mode === "steer" : id === turn.id)) return;
  endTurn(draft, event.at);
  const { at, seq } = event;
  const start = { answer: "", cost: null, hasFailed: false, isInterrupted: false };
  draft.turn = { key: `turn:${seq}`, id, request, at, pausedMs: 0, ...start };
  draft.ended = null;
}

export function noteTurn(draft: ScreenDraft, change: Partial<Pick<RunningTurn, "answer" | "hasFailed" | "isInterrupted">>): void {
  if (draft.turn) draft.turn = { ...draft.turn, ...change };
}

/** Adds a model call to its turn. The usage of the last call may follow the end of the turn. */
export function addTurnCost(draft: ScreenDraft, usage: UsageExtras): void {
  const { turn, ended } = draft;
  if (turn) draft.turn = { ...turn, cost: plus(turn.cost, usage) };
  const row = turn || !ended ? undefined : findRow(draft, ended.key);
  if (row?.kind === "turn") putRow(draft, { ...row, cost: plus(row.cost, usage) });
}

function plus(cost: SpentCost | null, { cost_usd, estimated }: UsageExtras): SpentCost {
  return {
    usd: (cost?.usd ?? 0) + (cost_usd ?? 0),
    isComplete: cost?.isComplete !== false && cost_usd !== null,
    isEstimated: cost?.isEstimated === true || estimated === true,
  };
}

/** Ends the running turn, if any. `reason`: reason of the state that follows. */
export function endTurn(draft: ScreenDraft, at: string, state?: AgentState, reason?: string): void {
  const { turn } = draft;
  if (!turn) return;
  const hasFailed = turn.hasFailed || state === "failed" || reason === "failed";
  const outcome = turn.isInterrupted ? "interrupted" : reason === "budget" ? "budget" : hasFailed ? "failed" : "finished";
  const { key, id, request, answer, cost } = turn;
  const row: TurnRow = { kind: "turn", key, at, outcome, durationMs: workedMs(draft, turn, at), cost, answer, turn: id, end: state ? draft.lastSeq : draft.lastSeq - 1 };
  draft.turn = null;
  draft.ended = { key, outcome, request };
  putRow(draft, row);
}

/** Notes the capture of a turn's workspace, or what it changed. Both follow the end of the turn. */
export function noteCapture(draft: ScreenDraft, { observation, extras }: ObservationEvent<"checkpoint"> | ObservationEvent<"changes">): void {
  const row = draft.rows.findLast((row): row is TurnRow => row.kind === "turn" && row.turn === extras.checkpoint);
  if (row) putRow(draft, { ...row, [observation]: extras, ...(draft.ended?.key === row.key && { end: draft.lastSeq }) });
}
