// Parts of a generic tool call. Agents are untrusted, so entries of a wrong shape are left out.

import type { ToolFileChange, ToolLocation } from "../wire/event";
import type { ToolRow } from "./rows";

export type FileChange = Omit<ToolFileChange, "change"> & { change?: string };

export interface GenericCall {
  kind: string;
  title: string;
  input: unknown;
  locations: ToolLocation[];
  changes: FileChange[];
}

/** Reads a call. The result names kind, title and locations again, more exactly. */
export function genericCallOf({ args, end }: ToolRow): GenericCall {
  const newest = { ...args, ...end?.extras };
  return {
    kind: textOf(newest.kind) ?? "other",
    title: textOf(newest.title) || textOf(newest.name) || "",
    input: args.input ?? undefined,
    locations: entriesOf(newest.locations).map(({ path, line }) => ({ path, line: numberOf(line) })),
    changes: entriesOf(newest.changes).map(({ path, change, diff, added, removed }) => ({
      path,
      change: textOf(change),
      diff: textOf(diff),
      added: numberOf(added),
      removed: numberOf(removed),
    })),
  };
}

/** Returns the diffs of all changes as one text, or `null` if there is none. */
export function diffsOf(row: ToolRow): string | null {
  const diffs = genericCallOf(row).changes.flatMap(({ diff }) => (diff ? [diff] : []));
  return diffs.length === 0 ? null : diffs.join("\n");
}

function entriesOf(value: unknown): (Record<string, unknown> & { path: string })[] {
  if (!Array.isArray(value)) return [];
  return value.filter((entry) => typeof entry === "object" && entry !== null && typeof entry.path === "string");
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}
