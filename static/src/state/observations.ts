// Observations: what came of an act, or happened by itself.

import type { AgentState, ObservationEvent, Observations } from "../wire/event";
import { truncatedOf } from "../wire/shape";
import { enter } from "./activity";
import { findTool, putPlan, putRow, removeRow, settle, speak, type Draft } from "./draft";
import { whole, type NoticeRow, type ToolEnd, type UserRow } from "./rows";
import { isLossTold } from "./session";

type Apply<K extends keyof Observations> = (draft: Draft, event: ObservationEvent<K>) => void;

const APPLY: { [K in keyof Observations]: Apply<K> } = {
  run(draft, event) {
    const { exit_code: code, duration_ms } = event.extras;
    endTool(draft, event, code === 0 ? "ok" : code === undefined && !event.extras.timed_out ? "stopped" : "failed", duration_ms);
  },
  read: (draft, event) => endTool(draft, event, "ok"),
  write: (draft, event) => endTool(draft, event, "ok"),
  edit: (draft, event) => endTool(draft, event, "ok"),
  browse: (draft, event) => endTool(draft, event, "ok"),
  chat: deliver,
  message(draft, event) {
    const key = `text:${event.item ?? event.seq}`;
    const { item, at } = event;
    const truncated = truncatedOf(event.extras);
    putRow(draft, { kind: "text", key, item, at, open: false, partial: event.extras.partial === true, truncated, ...whole(event.content) });
    speak(draft, event.seq, event.content);
  },
  think(draft, event) {
    const key = `thinking:${event.item ?? event.seq}`;
    const { item, at } = event;
    const truncated = truncatedOf(event.extras);
    putRow(draft, { kind: "thinking", key, item, at, open: false, partial: event.extras.partial === true, truncated, ...whole(event.content) });
  },
  plan(draft, event) {
    if (event.item !== undefined) removeRow(draft, `tool:${event.item}`);
    const key = `plan:${event.item ?? event.seq}`;
    const { item, at, content: markdown } = event;
    const truncated = truncatedOf(event.extras);
    putPlan(draft, { kind: "plan", key, item, at, markdown, truncated, items: event.extras.items, superseded: false });
  },
  confirm(draft, event) {
    const { request, action, risk, options } = event.extras;
    draft.question = { request, action, risk, options, why: event.content };
    speak(draft, event.seq, `The agent asks: may it do this? ${action}`);
  },
  confirmed(draft, event) {
    const { request, decision } = event.extras;
    const question = draft.question?.request === request ? draft.question : null;
    if (question) draft.question = null;
    notice(draft, event, "quiet", decided(decision, question?.reason), { detail: question?.action });
  },
  usage(draft, event) {
    const { total_cost_usd, known_cost_usd } = event.extras;
    draft.usage = event.extras;
    draft.knownCost = Math.max(draft.knownCost, total_cost_usd ?? known_cost_usd ?? 0);
    draft.model = event.extras.model;
  },
  agent_state_changed: changeState,
  interrupted(draft, event) {
    const { what, stopped_ms, rung, partial } = event.extras;
    // Nobody asked for it: that the sandbox is gone was told, and what it was at says that it was cut short.
    if (rung === "sandbox" && event.cause !== undefined && event.cause === draft.sandbox?.seq) return settle(draft, event.at, "cut");
    settle(draft, event.at);
    const kept = partial ? " What it had written is kept." : "";
    // From the first backtick to the last: the command may have some of its own.
    const code = /`(.+)`/s.exec(what)?.[1];
    notice(draft, event, "quiet", `Stopped ${what} in ${stopped_ms} ms.${kept}`, { code });
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
    draft.sandbox = { phase, seq: event.seq, why: event.content };
    draft.isolation = isolation ?? draft.isolation;
    if (phase === "lost") notice(draft, event, "bad", `${lostText(event.extras)}. The next message starts a fresh sandbox.`, { detail: stderr_tail });
    if (phase === "failed") notice(draft, event, "bad", "The sandbox could not be started", { detail: stderr_tail || event.content || undefined });
  },
  error(draft, event) {
    if (wasNeverMade(draft, event)) return;
    if (findTool(draft, event)) endTool(draft, event, event.extras.code === "cut" ? "cut" : "failed");
    else notice(draft, event, "bad", event.extras.detail || event.extras.code, { detail: event.content || undefined });
  },
};

/** A call that the model began to write, and whose answer broke off: it is asked for again, and what came of this is nothing. */
function wasNeverMade(draft: Draft, event: ObservationEvent<"error">): boolean {
  if (event.source !== "agent" || event.extras.code !== "cut" || event.item === undefined) return false;
  const row = findTool(draft, event);
  if (row && row.seq !== null) return false;
  if (row) removeRow(draft, row.key);
  return true;
}

export function applyObservation(draft: Draft, event: ObservationEvent): void {
  if (Object.hasOwn(APPLY, event.observation)) (APPLY[event.observation] as Apply<keyof Observations>)(draft, event);
  else if (findTool(draft, event)) endTool(draft, event, "ok");
  else if (event.message) notice(draft, event, "quiet", event.message, { detail: event.content || undefined });
}

function endTool(draft: Draft, event: ObservationEvent, outcome: ToolEnd["outcome"], durationMs: number | null = null): void {
  const row = findTool(draft, event);
  if (!row) return;
  const content = event.content || (event.observation === "error" ? (event.extras as Observations["error"]).detail : "");
  const lasted = durationMs ?? (row.at ? Date.parse(event.at) - Date.parse(row.at) : null);
  const end: ToolEnd = { outcome, at: event.at, content, extras: { ...event.extras }, durationMs: lasted };
  putRow(draft, { ...row, end });
}

/** A message has reached the agent: one that waited in the queue moves to where it was read. */
function deliver(draft: Draft, event: ObservationEvent<"chat">): void {
  const sent = draft.rows.findLast(
    (row): row is UserRow =>
      row.kind === "user" && (row.seq === event.cause || (row.item !== undefined && row.item === event.item)),
  );
  const attachments = event.extras.attachments ?? sent?.attachments ?? [];
  const text = event.content || sent?.text || "";
  if (sent?.phase === "sent") return putRow(draft, { ...sent, text, attachments, phase: "delivered" });
  if (sent) removeRow(draft, sent.key);
  const { seq, item, at } = event;
  const key = sent?.key ?? `user:${seq}`;
  putRow(draft, { kind: "user", key, seq: sent?.seq ?? seq, item, at, text, mode: sent?.mode ?? "queue", attachments, phase: "delivered" });
}

/** The states in which something may be under way: what a person asks of a session that rests waits for it to start. */
const AT_WORK: readonly AgentState[] = ["starting", "running", "awaiting_confirmation", "interrupting", "paused"];

function changeState(draft: Draft, event: ObservationEvent<"agent_state_changed">): void {
  const { agent_state: state, reason, since, turn_over } = event.extras;
  enter(draft, state);
  // It was done as it was paused: no turn stands still, and the next message goes on.
  if (turn_over === true) draft.isFrozen = false;
  draft.reason = reason ?? null;
  draft.since = since;
  if (draft.session) draft.session = { ...draft.session, state, reason: reason ?? null };
  if (state !== "awaiting_confirmation" && state !== "paused") draft.question = null;
  if (!AT_WORK.includes(state)) settle(draft, event.at);
  else if (turn_over === true) settle(draft, event.at, "stopped", "agent");
  if (state === "starting" || !AT_WORK.includes(state)) {
    // What was to be stopped has ended. Sent again after a reconnect, the wish would stop what comes next.
    draft.sending = draft.sending.filter(({ wish }) => wish.action !== "interrupt");
  }
  if (state === "stopped") notice(draft, event, "quiet", reason ? `Stopped: ${reason}` : "Stopped");
  if (state === "failed" && !wasSaid(draft, reason)) notice(draft, event, "bad", reason ? `Failed: ${reason}` : "Failed");
  if (state === "ended") notice(draft, event, "quiet", reason ? `Ended: ${reason}` : "Ended");
}

/** Whether the newest notice says just that: the sandbox's death comes first, and then what it means. */
function wasSaid(draft: Draft, reason: string | undefined): boolean {
  if (isLossTold(draft, reason)) return true;
  const last = draft.rows.at(-1);
  return reason !== undefined && last?.kind === "notice" && last.text.toLowerCase().includes(reason.toLowerCase());
}

/** How a shell says that SIGKILL ended a process. */
const KILLED = 137;

function lostText({ exit_code: code, out_of_memory }: Observations["sandbox"]): string {
  if (out_of_memory === true) return `The sandbox ran out of memory and was killed${code == null ? "" : ` (exit code ${code})`}`;
  if (code == null) return "The sandbox is gone";
  return code === KILLED ? `The sandbox was killed (SIGKILL, exit code ${code})` : `The sandbox died with exit code ${code}`;
}

function decided(decision: Observations["confirmed"]["decision"], reason: string | undefined): string {
  if (decision === "deny") return reason ? `You denied it: ${reason}` : "You denied it";
  return decision === "allow_always" ? "You allowed it, always" : "You allowed it";
}

function notice(draft: Draft, event: ObservationEvent, tone: NoticeRow["tone"], text: string, more: Pick<NoticeRow, "detail" | "code"> = {}): void {
  putRow(draft, { kind: "notice", key: `notice:${event.seq}`, at: event.at, tone, text, ...more });
  speak(draft, event.seq, text);
}
