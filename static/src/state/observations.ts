// Reducers of observations: results of actions, and events without an action.

import type { AgentState, ObservationEvent, ObservationExtras, ToolStatus } from "../wire/event";
import { truncationOf } from "../wire/eventShape";
import { enterState } from "./activity";
import { findTool, putPlan, putRow, removeRow, closeOpenRows, announce, type ScreenDraft } from "./screenDraft";
import { thinkingTime } from "./thinkingTime";
import { wholeText, type TakenDecision, type NoticeRow, type ToolEnd, type UserRow } from "./rows";
import { isLossReported } from "./screenState";
import { addTurnCost, beginTurn, endTurn, noteCapture, noteTurn, trackPause, workedMs } from "./turns";

const TOOL_OUTCOMES: Record<ToolStatus, ToolEnd["outcome"]> = { completed: "ok", failed: "failed", stopped: "stopped" };

type ObservationReducer<K extends keyof ObservationExtras> = (draft: ScreenDraft, event: ObservationEvent<K>) => void;

type ObservationReducers = { [K in keyof ObservationExtras]: ObservationReducer<K> };

const OBSERVATION_REDUCERS: ObservationReducers = {
  run(draft, event) {
    const { exit_code: code, duration_ms } = event.extras;
    endTool(draft, event, code === 0 ? "ok" : code === undefined && !event.extras.timed_out ? "stopped" : "failed", duration_ms);
  },
  read: (draft, event) => endTool(draft, event, "ok"),
  write: (draft, event) => endTool(draft, event, "ok"),
  edit: (draft, event) => endTool(draft, event, "ok"),
  browse: (draft, event) => endTool(draft, event, "ok"),
  tool: (draft, event) => endTool(draft, event, TOOL_OUTCOMES[event.extras.status] ?? "ok"),
  chat: deliver,
  message(draft, event) {
    const key = `text:${event.item ?? event.seq}`;
    const { item, at } = event;
    const truncated = truncationOf(event.extras);
    putRow(draft, { kind: "text", key, item, at, open: false, partial: event.extras.partial === true, truncated, ...wholeText(event.content) });
    noteTurn(draft, { answer: event.content, hasFailed: false });
    announce(draft, event.seq, event.content);
  },
  think(draft, event) {
    const key = `thinking:${event.item ?? event.seq}`;
    const { item, at } = event;
    const truncated = truncationOf(event.extras);
    const durationMs = thinkingTime(draft, at);
    putRow(draft, { kind: "thinking", key, item, at, open: false, partial: event.extras.partial === true, durationMs, truncated, ...wholeText(event.content) });
  },
  plan(draft, event) {
    const { item, at, content: markdown } = event;
    const { items, path } = event.extras;
    const last = draft.rows.at(-1);
    const byUser = event.source === "user";
    // The agent also reports the plan that the user has saved.
    if (item === undefined && draft.plan?.byUser && draft.plan.markdown === markdown) return;
    if (item !== undefined) removeRow(draft, `tool:${item}`);
    // Edits of the user in a row are one row.
    const key = byUser && last?.kind === "plan" && last.byUser ? last.key : `plan:${item ?? event.seq}`;
    putPlan(draft, { kind: "plan", key, item, at, markdown, path, byUser, truncated: truncationOf(event.extras), items, superseded: false });
  },
  compaction(draft, event) {
    const { seq, at, content: markdown } = event;
    putRow(draft, { kind: "summary", key: `summary:${seq}`, at, markdown, truncated: truncationOf(event.extras) });
    announce(draft, seq, "Conversation summarised");
  },
  checkpoint(draft, event) {
    noteCapture(draft, event);
    if (event.extras.kind === "restore") notice(draft, event, "quiet", "Workspace restored");
  },
  changes: noteCapture,
  forked(draft, event) {
    // A message that is not delivered yet stays with the forked session.
    draft.rows = draft.rows.filter((row) => row.kind !== "user" || row.phase !== "sent");
    notice(draft, event, "quiet", event.message ?? "", { fork: event.extras });
  },
  repository(draft, event) {
    const { phase, url, branch, detail } = event.extras;
    // The outcome replaces the note of its beginning.
    if (phase !== "cloning") removeRow(draft, CLONING);
    if (phase === "cloned" && draft.session) draft.session = { ...draft.session, repository: event.extras };
    if (phase === "cloning") putRow(draft, { kind: "notice", key: CLONING, at: event.at, tone: "quiet", text: `Cloning \`${url}\`…` });
    else if (phase === "cloned") notice(draft, event, "quiet", `Cloned \`${url}\` to the branch \`${branch ?? ""}\``);
    else notice(draft, event, "bad", `Couldn't clone \`${url}\`. Send a message to try again.`, { detail });
  },
  pushed(draft, event) {
    const { url, branch, commit } = event.extras;
    notice(draft, event, "quiet", `Pushed \`${commit.slice(0, SHORT_COMMIT)}\` to the branch \`${branch}\` of \`${url}\``);
  },
  commands(draft, event) {
    const { items, more = 0 } = event.extras;
    draft.leftovers = items.length > 0 ? { items, more, at: event.at } : null;
  },
  confirm(draft, event) {
    const { item, at, content: explanation, extras } = event;
    draft.approvals = [...draft.approvals.filter(({ request }) => request !== extras.request), { ...extras, item, at, explanation }];
    const row = findTool(draft, event);
    if (row) putRow(draft, { ...row, isHeld: true });
    announce(draft, event.seq, `Approval needed: ${extras.action}`);
  },
  confirmed(draft, event) {
    const { at, extras } = event;
    const question = draft.approvals.find(({ request }) => request === extras.request);
    draft.approvals = draft.approvals.filter((open) => open !== question);
    const item = event.item ?? question?.item;
    const decision = { ...extras, reason: extras.reason ?? question?.reason, item };
    draft.decisions = [...draft.decisions, decision].slice(-MAX_DECISIONS);
    const text = decisionText(decision);
    if (item === undefined) return notice(draft, event, "quiet", text, { detail: question?.action });
    const row = findTool(draft, { item });
    // The call's own time begins now.
    if (row) putRow(draft, { ...row, isHeld: false, decision, ...(question && { at, pausedMs: 0 }) });
    announce(draft, event.seq, text);
  },
  usage(draft, event) {
    const { total_cost_usd, known_cost_usd } = event.extras;
    draft.usage = event.extras;
    draft.isEstimated ||= event.extras.estimated === true;
    draft.knownCost = Math.max(draft.knownCost, total_cost_usd ?? known_cost_usd ?? 0);
    draft.model = event.extras.model;
    addTurnCost(draft, event.extras);
  },
  agent_state_changed: changeState,
  interrupted(draft, event) {
    const { what, stopped_ms, rung, partial } = event.extras;
    // A lost sandbox is not a requested stop. The loss has its own notice, and the open rows show
    // the cut.
    if (rung === "sandbox" && event.cause !== undefined && event.cause === draft.sandbox?.seq) {
      noteTurn(draft, { hasFailed: true });
      return closeOpenRows(draft, event.at, "cut");
    }
    noteTurn(draft, { isInterrupted: true });
    closeOpenRows(draft, event.at);
    const partialNote = partial ? " Partial output is kept." : "";
    // Text between the first and the last backtick. The command may contain backticks.
    const code = /`(.+)`/s.exec(what)?.[1];
    notice(draft, event, "quiet", `Interrupted ${what} in ${stopped_ms} ms.${partialNote}`, { code });
  },
  queue(draft, event) {
    draft.queue = event.extras.items;
    const waiting = new Set(draft.queue.map((queued) => queued.item));
    draft.rows = draft.rows.map((row) => {
      if (row.kind !== "user" || row.item === undefined || row.phase === "delivered") return row;
      const phase = waiting.has(row.item) ? "queued" : row.phase === "queued" ? "withdrawn" : row.phase;
      return phase === row.phase ? row : { ...row, phase };
    });
  },
  sandbox(draft, event) {
    const { phase, stderr_tail, isolation } = event.extras;
    draft.sandbox = { phase, seq: event.seq, reason: event.content };
    draft.isolation = isolation ?? draft.isolation;
    if (phase === "lost") notice(draft, event, "bad", `${lostText(event.extras)}. Send a message to start a new sandbox.`, { detail: stderr_tail });
    if (phase === "failed") notice(draft, event, "bad", "The sandbox could not be started", { detail: stderr_tail || event.content || undefined });
  },
  error(draft, event) {
    if (dropUnmadeCall(draft, event)) return;
    const { code, detail } = event.extras;
    if (findTool(draft, event)) return endTool(draft, event, code === "cut" ? "cut" : "failed");
    // Earlier versions recorded each retry as an error.
    const tone = code === "provider_retrying" ? "quiet" : "bad";
    if (tone === "bad") {
      draft.retry = null;
      noteTurn(draft, { hasFailed: true });
    }
    notice(draft, event, tone, detail || code, { detail: event.content || undefined });
  },
  notice(draft, event) {
    const { code, detail } = event.extras;
    if (code === "provider_retried") draft.retry = null;
    const text = detail || code;
    notice(draft, event, "quiet", text, { detail: event.content !== text && event.content ? event.content : undefined });
  },
};

/** Drops a call whose model response broke off while being written. The model is asked again. */
function dropUnmadeCall(draft: ScreenDraft, event: ObservationEvent<"error">): boolean {
  if (event.source !== "agent" || event.extras.code !== "cut" || event.item === undefined) return false;
  const row = findTool(draft, event);
  if (row && row.seq !== null) return false;
  if (row) removeRow(draft, row.key);
  return true;
}

export function applyObservation(draft: ScreenDraft, event: ObservationEvent): void {
  if (Object.hasOwn(OBSERVATION_REDUCERS, event.observation)) (OBSERVATION_REDUCERS[event.observation] as ObservationReducer<keyof ObservationExtras>)(draft, event);
  else if (findTool(draft, event)) endTool(draft, event, "ok");
  else if (event.message) notice(draft, event, "quiet", event.message, { detail: event.content || undefined });
}

function endTool(draft: ScreenDraft, event: ObservationEvent, outcome: ToolEnd["outcome"], durationMs: number | null = null): void {
  const row = findTool(draft, event);
  if (!row) return;
  const content = event.content || (event.observation === "error" ? (event.extras as ObservationExtras["error"]).detail : "");
  const lasted = durationMs ?? (row.at ? workedMs(draft, row, event.at) : null);
  if (row.source === "agent") noteTurn(draft, { hasFailed: false });
  const end: ToolEnd = { outcome, at: event.at, content, extras: { ...event.extras }, durationMs: lasted };
  putRow(draft, { ...row, end });
}

/** Marks a message as delivered. A queued one moves to the place of delivery. */
function deliver(draft: ScreenDraft, event: ObservationEvent<"chat">): void {
  const sent = draft.rows.findLast(
    (row): row is UserRow =>
      row.kind === "user" && (row.seq === event.cause || (row.item !== undefined && row.item === event.item)),
  );
  const attachments = event.extras.attachments ?? sent?.attachments ?? [];
  const text = event.content || sent?.text || "";
  beginTurn(draft, event, sent, { text, attachments });
  const begins = draft.turn?.key === `turn:${event.seq}` ? event.seq : undefined;
  if (sent?.phase === "sent") return putRow(draft, { ...sent, text, attachments, begins, phase: "delivered" });
  if (sent) removeRow(draft, sent.key);
  const { seq, item, at } = event;
  const key = sent?.key ?? `user:${seq}`;
  putRow(draft, { kind: "user", key, seq: sent?.seq ?? seq, item, at, text, mode: sent?.mode ?? "queue", attachments, begins, phase: "delivered" });
}

/** States in which requests for approval stay open. */
const APPROVAL_STATES: readonly AgentState[] = ["awaiting_confirmation", "paused", "starting"];

/** Key of the row that a clone has until its outcome. */
const CLONING = "cloning";

/** Length of a shown commit id. */
const SHORT_COMMIT = 8;

/** Number of decisions kept. */
const MAX_DECISIONS = 64;

/** States in which work may be open. A request to a resting session waits for its start. */
const ACTIVE_STATES: readonly AgentState[] = ["starting", "running", "awaiting_confirmation", "interrupting", "paused"];

function changeState(draft: ScreenDraft, event: ObservationEvent<"agent_state_changed">): void {
  const { agent_state: state, reason, since, turn_over } = event.extras;
  trackPause(draft, state, event.at);
  enterState(draft, state);
  // The turn ended with the pause. The next message starts a new one.
  if (turn_over === true) draft.isPausedMidTurn = false;
  draft.reason = reason ?? null;
  draft.since = since;
  // The waiting call ended with its turn.
  if (state !== "running" || turn_over === true) draft.retry = null;
  if (draft.session) draft.session = { ...draft.session, state, reason: reason ?? null };
  if (!APPROVAL_STATES.includes(state)) draft.approvals = [];
  // The sandbox's processes end with it.
  if (["starting", "stopped", "failed", "ended"].includes(state)) draft.leftovers = null;
  if (!ACTIVE_STATES.includes(state)) closeOpenRows(draft, event.at);
  else if (turn_over === true) closeOpenRows(draft, event.at, "stopped", "agent");
  if (turn_over === true || state === "starting" || !ACTIVE_STATES.includes(state)) endTurn(draft, event.at, state, reason);
  if (state === "starting" || !ACTIVE_STATES.includes(state)) {
    // The interrupt's target has ended. Resent after a reconnect, the request would stop the next
    // turn.
    draft.pending = draft.pending.filter(({ request }) => request.action !== "interrupt");
  }
  if (state === "stopped") notice(draft, event, "quiet", reason ? `Sandbox stopped: ${reason}` : "Sandbox stopped");
  if (state === "failed" && !isReported(draft, reason)) notice(draft, event, "bad", reason ? `Failed: ${reason}` : "Failed");
  if (state === "ended") notice(draft, event, "quiet", reason ? `Ended: ${reason}` : "Ended");
}

/**
 * Reports if the newest notice states the reason already. A sandbox's loss precedes the state
 * change.
 */
function isReported(draft: ScreenDraft, reason: string | undefined): boolean {
  if (isLossReported(draft, reason)) return true;
  const last = draft.rows.at(-1);
  return reason !== undefined && last?.kind === "notice" && last.text.toLowerCase().includes(reason.toLowerCase());
}

/** Exit code of SIGKILL in a shell. */
const KILLED = 137;

function lostText({ exit_code: code, out_of_memory }: ObservationExtras["sandbox"]): string {
  if (out_of_memory === true) return `The sandbox ran out of memory and was killed${code == null ? "" : ` (exit code ${code})`}`;
  if (code == null) return "The sandbox is gone";
  return code === KILLED ? `The sandbox was killed (SIGKILL, exit code ${code})` : `The sandbox died with exit code ${code}`;
}

/** Returns a decision in words, with its author and its reason. */
export function decisionText({ decision, who, reason, edited, withdrawn }: TakenDecision): string {
  if (withdrawn) return "Approval withdrawn";
  const did = decision === "deny" ? "Denied" : edited ? "Edited and allowed" : decision === "allow" ? "Allowed" : "Always allowed";
  return did + (who ? ` by ${who}` : "") + (reason ? `: ${reason}` : "");
}

function notice(draft: ScreenDraft, event: ObservationEvent, tone: NoticeRow["tone"], text: string, more: Pick<NoticeRow, "detail" | "code" | "fork"> = {}): void {
  putRow(draft, { kind: "notice", key: `notice:${event.seq}`, at: event.at, tone, text, ...more });
  announce(draft, event.seq, text);
}
