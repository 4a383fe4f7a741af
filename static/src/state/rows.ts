// Rows of the chat, top to bottom. Rows are replaced, never changed. An unchanged row keeps its
// identity and is not drawn again.

import type {
  EventOrigin, MessageMode, ObservationExtras, PlanItem, RiskAssessment, TruncationMark, WorkspaceChanges, WorkspaceCheckpoint,
} from "../wire/event";
import type { ForkOrigin } from "../wire/generated/types";
import type { SpentCost } from "./screenState";

/** Text that grows by deltas. */
export interface GrowingText {
  text: string;
  /** Length of `text` in bytes of UTF-8, the unit of delta offsets. */
  bytes: number;
}

export interface UserRow {
  kind: "user";
  key: string;
  seq: number;
  item?: string;
  at: string;
  text: string;
  mode: MessageMode;
  /** `withdrawn`: left the queue, delivery still unknown. */
  phase: "sent" | "queued" | "withdrawn" | "delivered";
  attachments: string[];
  /** Number of the event that began a turn with this message. Absent if it began none. */
  begins?: number | undefined;
}

export interface TextRow extends GrowingText {
  kind: "text" | "thinking";
  key: string;
  item?: string;
  at?: string;
  open: boolean;
  partial: boolean;
  /** Duration of finished thinking in milliseconds, if known. */
  durationMs?: number | undefined;
  truncated?: TruncationMark | undefined;
}

/** Outcome of a tool call. */
export interface ToolEnd {
  /** `cut`: the sandbox or the agent went away during the call. */
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
  /** Finished pauses during the call, in milliseconds. */
  pausedMs?: number;
  source: EventOrigin;
  name: string | null;
  args: Record<string, unknown>;
  input: GrowingText;
  output: GrowingText;
  end: ToolEnd | null;
  risk?: RiskAssessment | undefined;
  /** True while a person's decision is awaited. */
  isHeld?: boolean;
  /** Newest decision about the call. */
  decision?: TakenDecision | undefined;
}

/** Decision about a tool call, by a person or by the policy. */
export type TakenDecision = ObservationExtras["confirmed"] & { item?: string | undefined };

export interface PlanRow {
  kind: "plan";
  key: string;
  item?: string;
  at: string;
  markdown: string;
  /** Path of the file inside the workspace. Absent while the plan is being written. */
  path?: string | undefined;
  /** Set on an edit of the user. */
  byUser?: boolean;
  truncated?: TruncationMark | undefined;
  items: PlanItem[];
  /** Replaced by a newer plan. */
  superseded: boolean;
}

/** Summary that replaces the earlier conversation in the model's context. */
export interface SummaryRow {
  kind: "summary";
  key: string;
  at: string;
  markdown: string;
  truncated?: TruncationMark | undefined;
}

export interface NoticeRow {
  kind: "notice";
  key: string;
  at: string;
  tone: "quiet" | "good" | "bad";
  text: string;
  /** Part of the text between backticks, shown as code. */
  code?: string;
  detail?: string;
  /** Set on the beginning of a fork. */
  fork?: ForkOrigin;
}

export type TurnOutcome = "finished" | "failed" | "interrupted" | "budget";

/** End of a turn. */
export interface TurnRow {
  kind: "turn";
  key: string;
  at: string;
  outcome: TurnOutcome;
  /** Time without pauses. */
  durationMs: number;
  /** Cost of the turn's model calls. `null`: none reported. */
  cost: SpentCost | null;
  /** Final text of the agent. Empty if it wrote none. */
  answer: string;
  /** Name on the wire. Its checkpoint has the same. */
  turn: string | undefined;
  /** Number of its last event, up to the capture of the workspace. */
  end: number;
  /** Capture of the workspace after the turn, and what it changed. Absent without a change. */
  checkpoint?: WorkspaceCheckpoint;
  changes?: WorkspaceChanges;
}

export type ChatRow = UserRow | TextRow | ToolRow | PlanRow | SummaryRow | NoticeRow | TurnRow;

/** Open request for the user's approval. Choices, call and risk are of unchecked shape. */
export type ApprovalRequest = ObservationExtras["confirm"] & {
  item?: string | undefined;
  at: string;
  explanation: string;
  /** Reason of a denial, set by the user's answer. */
  reason?: string | undefined;
};

export const noText: GrowingText = { text: "", bytes: 0 };

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/**
 * Adds a delta's content at its offset. A late client first receives the end of a long item as if
 * it began there. The next offset counts from the real beginning, so a seeming gap is appended as
 * well.
 */
export function appendDelta(before: GrowingText, offset: number, content: string): GrowingText {
  return { text: offset < before.bytes ? upTo(before, offset) + content : before.text + content, bytes: offset + byteLength(content) };
}

function upTo({ text, bytes }: GrowingText, offset: number): string {
  const encoded = encoder.encode(text);
  return decoder.decode(encoded.subarray(0, Math.max(0, encoded.length - (bytes - offset))));
}

export function wholeText(text: string): GrowingText {
  return { text, bytes: byteLength(text) };
}

function byteLength(text: string): number {
  return encoder.encode(text).length;
}
