// Deltas: pieces of items that are still growing.

import type { Delta } from "../wire/frame";
import { findRow, findTool, putRow, type Draft } from "./draft";
import { grow, nothing, type TextRow, type ToolRow } from "./rows";

export function applyDelta(draft: Draft, delta: Delta): void {
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

function growText(draft: Draft, kind: TextRow["kind"], delta: Delta): void {
  const key = `${kind}:${delta.item}`;
  const row = findRow(draft, key) as TextRow | undefined;
  // The durable event has the whole text: a piece that comes later says nothing new.
  if (row && !row.open) return;
  if (!row && delta.offset > 0) return;
  const begun: TextRow = row ?? { kind, key, item: delta.item, open: true, partial: false, ...nothing };
  putRow(draft, { ...begun, ...grow(begun, delta.offset, delta.content) });
}

function growInput(draft: Draft, delta: Delta): void {
  const row = findTool(draft, delta);
  if ((row && row.seq !== null) || (!row && delta.offset > 0)) return;
  const begun = row ?? unwritten(delta.item);
  putRow(draft, { ...begun, input: grow(begun.input, delta.offset, delta.content) });
}

function growOutput(draft: Draft, delta: Delta): void {
  const row = findTool(draft, delta);
  if (!row || row.end) return;
  putRow(draft, { ...row, output: grow(row.output, delta.offset, delta.content) });
}

/** A call that the model has begun to write. */
function unwritten(item: string): ToolRow {
  return {
    kind: "tool",
    key: `tool:${item}`,
    item,
    seq: null,
    source: "agent",
    name: null,
    args: {},
    input: nothing,
    output: nothing,
    end: null,
  };
}
