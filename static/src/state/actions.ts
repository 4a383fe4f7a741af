// Actions: what somebody asked for or did.

import type { ActionEvent, Actions } from "../wire/event";
import { putPlan, putRow, removeRow, speak, type Draft } from "./draft";
import { nothing, whole, type NoticeRow, type ToolRow } from "./rows";

type Apply<K extends keyof Actions> = (draft: Draft, event: ActionEvent<K>) => void;

const APPLY: { [K in keyof Actions]: Apply<K> } = {
  start(draft, event) {
    user(draft, event, event.args.task, "queue");
  },
  message(draft, event) {
    user(draft, event, event.args.content, event.args.mode ?? "queue", event.args.attachments);
  },
  run: tool,
  read: tool,
  write: tool,
  edit: tool,
  browse: tool,
  think(draft, event) {
    unwrite(draft, event);
    const key = `thinking:${event.item ?? event.seq}`;
    putRow(draft, { kind: "thinking", key, item: event.item, at: event.at, open: false, partial: false, ...whole(event.args.content) });
  },
  plan(draft, event) {
    unwrite(draft, event);
    const key = `plan:${event.item ?? event.seq}`;
    putPlan(draft, { kind: "plan", key, item: event.item, at: event.at, markdown: event.args.content, items: [], superseded: false });
  },
  finish(draft, event) {
    unwrite(draft, event);
    notice(draft, event, "good", "Task done", event.args.message || undefined);
    speak(draft, event.seq, event.args.message ? `Task done. ${event.args.message}` : "Task done");
  },
  // The answer counts when the server says so (`confirmed`), which does not say why it was given.
  confirm(draft, event) {
    const { request, reason } = event.args;
    if (draft.question?.request === request) draft.question = { ...draft.question, reason };
  },
  set_model(draft, event) {
    draft.model = event.args.model;
    notice(draft, event, "quiet", `Model: ${event.args.model}`);
  },
  // Their receipts are drawn: `interrupted`, and the states that follow.
  interrupt() {},
  pause(draft, event) {
    notice(draft, event, "quiet", "Paused");
  },
  resume(draft, event) {
    notice(draft, event, "quiet", "Resumed");
  },
  stop() {},
  end() {},
};

export function applyAction(draft: Draft, event: ActionEvent): void {
  // A kind from a newer agent is shown as a tool call, which has a result or none.
  if (!Object.hasOwn(APPLY, event.action)) return tool(draft, event);
  (APPLY[event.action] as Apply<keyof Actions>)(draft, event);
}

function user(
  draft: Draft,
  event: ActionEvent,
  text: string,
  mode: "queue" | "steer" | "interrupt",
  attachments: string[] = [],
): void {
  const key = `user:${event.seq}`;
  const { seq, item, at } = event;
  const queued = item !== undefined && draft.queue.some((waiting) => waiting.item === item);
  putRow(draft, { kind: "user", key, seq, item, at, text, mode, attachments, phase: queued ? "queued" : "sent" });
}

function tool(draft: Draft, event: ActionEvent): void {
  const row: ToolRow = {
    kind: "tool",
    key: `tool:${event.item ?? event.seq}`,
    item: event.item,
    seq: event.seq,
    at: event.at,
    source: event.source,
    name: event.action,
    args: { ...event.args },
    input: nothing,
    output: nothing,
    end: null,
  };
  putRow(draft, row);
}

/** Takes away the call as the model wrote it: what it asked for has a row of its own kind. */
function unwrite(draft: Draft, event: ActionEvent): void {
  if (event.item !== undefined) removeRow(draft, `tool:${event.item}`);
}

function notice(draft: Draft, event: ActionEvent, tone: NoticeRow["tone"], text: string, detail?: string): void {
  putRow(draft, { kind: "notice", key: `notice:${event.seq}`, at: event.at, tone, text, detail });
}
