// Reducers of deltas: pieces of items that still grow.

import type { DeltaFrame } from "../wire/frame";
import { findRow, findTool, putRow, type ScreenDraft } from "./screenDraft";
import { appendDelta, noText, type TextRow, type ToolRow } from "./rows";

export function applyDelta(draft: ScreenDraft, delta: DeltaFrame): void {
  switch (delta.delta) {
    case "text":
      return growText(draft, "text", delta);
    case "thinking":
      return growText(draft, "thinking", delta);
    case "tool_input":
      return growInput(draft, delta);
    case "output":
      return growOutput(draft, delta);
  }
}

function growText(draft: ScreenDraft, kind: TextRow["kind"], delta: DeltaFrame): void {
  const key = `${kind}:${delta.item}`;
  const row = findRow(draft, key) as TextRow | undefined;
  // The durable event holds the whole text. Later deltas add nothing.
  if (row && !row.open) return;
  if (!row && delta.offset > 0) return;
  const begun: TextRow = row ?? { kind, key, item: delta.item, open: true, partial: false, ...noText };
  putRow(draft, { ...begun, ...appendDelta(begun, delta.offset, delta.content) });
}

function growInput(draft: ScreenDraft, delta: DeltaFrame): void {
  const row = findTool(draft, delta);
  if ((row && row.seq !== null) || (!row && delta.offset > 0)) return;
  const begun = row ?? emptyCall(delta.item);
  putRow(draft, { ...begun, input: appendDelta(begun.input, delta.offset, delta.content) });
}

function growOutput(draft: ScreenDraft, delta: DeltaFrame): void {
  const row = findTool(draft, delta);
  if (!row || row.end) return;
  putRow(draft, { ...row, output: appendDelta(row.output, delta.offset, delta.content) });
}

/** Returns a row for a call that the model has begun to write. */
function emptyCall(item: string): ToolRow {
  return {
    kind: "tool",
    key: `tool:${item}`,
    item,
    seq: null,
    source: "agent",
    name: null,
    args: {},
    input: noText,
    output: noText,
    end: null,
  };
}
