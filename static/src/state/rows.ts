// The rows of a chat: what a person sees of a session, top to bottom. Rows are never changed, only replaced, so that an
// unchanged row is known by its identity and is not drawn again.

import type { Decision, Mode, PlanItem, Source, Truncated } from "../wire/event";

/** Text that grows by deltas. */
export interface Growing {
  text: string;
  /** How long `text` is in bytes of UTF-8, which is how deltas count. */
  bytes: number;
}

export interface UserRow {
  kind: "user";
  key: string;
  seq: number;
  item?: string;
  at: string;
  text: string;
  mode: Mode;
  /** A `withdrawn` message has left the queue, and it is not known yet whether the agent got it. */
  phase: "sent" | "queued" | "withdrawn" | "delivered";
  attachments: string[];
}

export interface TextRow extends Growing {
  kind: "text" | "thinking";
  key: string;
  item?: string;
  at?: string;
  open: boolean;
  partial: boolean;
  truncated?: Truncated | undefined;
}

/** How a tool call ended. */
export interface ToolEnd {
  /** `cut`: its sandbox or its agent went away under it. */
  outcome: "ok" | "failed" | "stopped" | "cut";
  at: string;
  content: string;
  extras: Record<string, unknown>;
  durationMs: number | null;
}

export interface ToolRow {
  kind: "tool";
  key: string;
  item?: string;
  /** `null` while the model still writes the call. */
  seq: number | null;
  at?: string;
  source: Source;
  name: string | null;
  args: Record<string, unknown>;
  input: Growing;
  output: Growing;
  end: ToolEnd | null;
}

export interface PlanRow {
  kind: "plan";
  key: string;
  item?: string;
  at: string;
  markdown: string;
  truncated?: Truncated | undefined;
  items: PlanItem[];
  /** A newer one has come: this one is history. */
  superseded: boolean;
}

export interface NoticeRow {
  kind: "notice";
  key: string;
  at: string;
  tone: "quiet" | "good" | "bad";
  text: string;
  /** What stands in the text between backticks, and is shown as code. */
  code?: string;
  detail?: string;
}

export type Row = UserRow | TextRow | ToolRow | PlanRow | NoticeRow;

/** A question to the person that is not answered yet. */
export interface Question {
  request: string;
  action: string;
  risk: string;
  why: string;
  /** Why the person denied it, from their answer on. */
  reason?: string | undefined;
  options: Decision[];
}

export const nothing: Growing = { text: "", bytes: 0 };

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/**
 * Adds a delta's content at its offset. Of a long item whoever comes late is sent the end, as if it began there, and the next
 * piece has its place in the whole: so one that seems to leave a gap follows all the same.
 */
export function grow(so: Growing, offset: number, content: string): Growing {
  return { text: offset < so.bytes ? upTo(so, offset) + content : so.text + content, bytes: offset + byteLength(content) };
}

function upTo({ text, bytes }: Growing, offset: number): string {
  const encoded = encoder.encode(text);
  return decoder.decode(encoded.subarray(0, Math.max(0, encoded.length - (bytes - offset))));
}

export function whole(text: string): Growing {
  return { text, bytes: byteLength(text) };
}

function byteLength(text: string): number {
  return encoder.encode(text).length;
}
