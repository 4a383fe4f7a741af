// Consecutive reads of the agent as one item of the conversation. Pure, apart from a cache.

import { genericCallOf } from "./genericCall";
import type { ChatRow, ToolRow } from "./rows";

/** Consecutive reads. A single one is a group too, so that it keeps its place when it grows. */
export interface ReadGroup {
  kind: "reads";
  /** Key of the first read. A growing group keeps it. */
  key: string;
  rows: readonly ToolRow[];
}

export type ChatItem = ChatRow | ReadGroup;

/** Bound: 50 reads per group. When full: the next read begins another group. */
const MAX_READS = 50;

export class ReadGrouping {
  /** Groups of the last call. An unchanged one keeps its identity and is not drawn again. */
  private known = new Map<string, ReadGroup>();

  group(rows: readonly ChatRow[]): ChatItem[] {
    const items: ChatItem[] = [];
    const groups = new Map<string, ReadGroup>();
    for (let at = 0; at < rows.length; ) {
      const row = rows[at]!;
      const reads = readsFrom(rows, at);
      if (reads.length === 0) items.push(row);
      else {
        const key = `reads ${row.key}`;
        const known = this.known.get(key);
        const group = known && isSame(known.rows, reads) ? known : ({ kind: "reads", key, rows: reads } as const);
        groups.set(key, group);
        items.push(group);
      }
      at += Math.max(1, reads.length);
    }
    this.known = groups;
    return items;
  }
}

/** Reports if the item has this key, or is a group that now begins before the item of this key. */
export function isOrHolds(item: ChatItem, key: string | undefined): boolean {
  return item.key === key || (item.kind === "reads" && item.rows.some((row) => `reads ${row.key}` === key));
}

/** Reports if the item has this key, or is a group with a read of this key. */
export const showsRow = (item: ChatItem, key: string): boolean =>
  item.key === key || (item.kind === "reads" && item.rows.some((row) => row.key === key));

/** Returns the reads in a row from this index, up to the bound. */
function readsFrom(rows: readonly ChatRow[], from: number): ToolRow[] {
  const reads: ToolRow[] = [];
  for (let row = rows[from]; row && isRead(row) && reads.length < MAX_READS; row = rows[from + reads.length]) reads.push(row);
  return reads;
}

const generic = new WeakMap<ToolRow, boolean>();

function isRead(row: ChatRow): row is ToolRow {
  if (row.kind !== "tool" || row.source !== "agent") return false;
  if (row.name !== "tool") return row.name === "read";
  const isKnown = generic.get(row) ?? genericCallOf(row).kind === "read";
  generic.set(row, isKnown);
  return isKnown;
}

function isSame(before: readonly ToolRow[], after: readonly ToolRow[]): boolean {
  return before.length === after.length && before.every((row, n) => row === after[n]);
}
