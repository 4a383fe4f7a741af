// Reducers of actions: requests of the user and tool calls of the agent.

import { capitalised, cost } from "../format";
import { modelText } from "./effort";
import type { ActionEvent, ActionArguments, AgentState } from "../wire/event";
import { putPlan, putRow, removeRow, announce, type ScreenDraft } from "./screenDraft";
import { noText, wholeText, type NoticeRow, type ToolRow } from "./rows";
import { noteTurn } from "./turns";

type ActionReducer<K extends keyof ActionArguments> = (draft: ScreenDraft, event: ActionEvent<K>) => void;

const ACTION_REDUCERS: { [K in keyof ActionArguments]: ActionReducer<K> } = {
  start(draft, event) {
    putUserRow(draft, event, event.args.task, "queue");
  },
  message(draft, event) {
    putUserRow(draft, event, event.args.content, event.args.mode ?? "queue", event.args.attachments);
  },
  run: putToolRow,
  read: putToolRow,
  write: putToolRow,
  edit: putToolRow,
  browse: putToolRow,
  tool: putToolRow,
  think(draft, event) {
    removeCallDraft(draft, event);
    const key = `thinking:${event.item ?? event.seq}`;
    putRow(draft, { kind: "thinking", key, item: event.item, at: event.at, open: false, partial: false, ...wholeText(event.args.content) });
  },
  plan(draft, event) {
    removeCallDraft(draft, event);
    const key = `plan:${event.item ?? event.seq}`;
    putPlan(draft, { kind: "plan", key, item: event.item, at: event.at, markdown: event.args.content, items: [], superseded: false });
  },
  finish(draft, event) {
    removeCallDraft(draft, event);
    if (event.args.message) noteTurn(draft, { answer: event.args.message });
    notice(draft, event, "good", "Task done", event.args.message || undefined);
    announce(draft, event.seq, event.args.message ? `Task done. ${event.args.message}` : "Task done");
  },
  // The answer takes effect with `confirmed`. Earlier versions left the reason out there.
  confirm(draft, event) {
    const { request, reason } = event.args;
    draft.approvals = draft.approvals.map((open) => (open.request === request ? { ...open, reason } : open));
  },
  set_mode(draft, event) {
    draft.mode = event.args.mode;
    notice(draft, event, "quiet", `Mode: ${capitalised(event.args.mode)}`);
  },
  set_model(draft, event) {
    const { model, effort = null } = event.args;
    draft.model = model;
    draft.effort = effort;
    notice(draft, event, "quiet", modelText(model, effort));
  },
  set_budget(draft, event) {
    const budget_usd = event.args.usd ?? null;
    if (draft.session) draft.session = { ...draft.session, budget_usd };
    notice(draft, event, "quiet", budget_usd === null ? "Budget removed" : `Budget: ${cost(budget_usd)}`);
  },
  kill_process(draft, event) {
    notice(draft, event, "quiet", `Ending process ${event.args.pid}`);
  },
  // The resulting events are drawn: `interrupted`, and the state changes.
  interrupt() {},
  pause(draft, event) {
    notice(draft, event, "quiet", "Paused");
  },
  resume(draft, event) {
    // Before a replay, the state is the newest one. The pause comes from events alone.
    const text = draft.pausedAt !== null ? "Resumed" : resumeText(draft.agentState);
    if (text) notice(draft, event, "quiet", text);
  },
  stop() {},
  end() {},
};

/** Returns the text for a request to continue in a state. Only a pause is resumed. */
function resumeText(state: AgentState | null): string | null {
  if (state === "paused") return "Resumed";
  if (state === "stopped" || state === "failed") return "Starting the sandbox";
  return state === "idle" ? "Continuing with the queue" : null;
}

export function applyAction(draft: ScreenDraft, event: ActionEvent): void {
  // An unknown kind from a newer agent is drawn as a tool call, with or without a result.
  if (!Object.hasOwn(ACTION_REDUCERS, event.action)) return putToolRow(draft, event);
  (ACTION_REDUCERS[event.action] as ActionReducer<keyof ActionArguments>)(draft, event);
}

function putUserRow(
  draft: ScreenDraft,
  event: ActionEvent,
  text: string,
  mode: "queue" | "steer" | "interrupt",
  attachments: string[] = [],
): void {
  const key = `user:${event.seq}`;
  draft.ended = null;
  const { seq, item, at } = event;
  const queued = item !== undefined && draft.queue.some((waiting) => waiting.item === item);
  putRow(draft, { kind: "user", key, seq, item, at, text, mode, attachments, phase: queued ? "queued" : "sent" });
}

function putToolRow(draft: ScreenDraft, event: ActionEvent): void {
  if (event.source === "agent") noteTurn(draft, { hasFailed: false });
  const { item } = event;
  const isOwn = (other: { item?: string | undefined }) => item !== undefined && other.item === item;
  const row: ToolRow = {
    kind: "tool",
    key: `tool:${item ?? event.seq}`,
    item,
    seq: event.seq,
    at: event.at,
    source: event.source,
    name: event.action,
    args: { ...event.args },
    input: noText,
    output: noText,
    end: null,
    risk: event.risk,
    isHeld: draft.approvals.some(isOwn),
    decision: draft.decisions.findLast(isOwn),
  };
  putRow(draft, row);
}

/** Removes the streamed call. The resulting action has a row of its own kind. */
function removeCallDraft(draft: ScreenDraft, event: ActionEvent): void {
  if (event.item !== undefined) removeRow(draft, `tool:${event.item}`);
}

function notice(draft: ScreenDraft, event: ActionEvent, tone: NoticeRow["tone"], text: string, detail?: string): void {
  putRow(draft, { kind: "notice", key: `notice:${event.seq}`, at: event.at, tone, text, detail });
}
