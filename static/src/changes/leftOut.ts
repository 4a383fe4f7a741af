// Entries of the workspace that a checkpoint does not contain, in words.

import { escapeInvisible } from "../escapes";
import { plural } from "../format";
import type { LeftOutEntry, LeftOutReason } from "../wire/generated/types";

const REASONS: Record<LeftOutReason, string> = {
  ignored: "ignored",
  too_large: "too large",
  special: "special file",
  unreadable: "unreadable",
  limit: "too many files",
};

/** Names of entries that a line lists. */
const LISTED = 5;

/** Returns a line with the first entries and their reasons. `more`: number of unlisted entries. */
export function leftOutText(entries: readonly LeftOutEntry[], more: number): string {
  const named = entries.slice(0, LISTED).map(({ path, reason }) => `\`${escapeInvisible(path)}\` (${REASONS[reason]})`);
  const others = entries.length - named.length + more;
  return `Not captured: ${[...named, ...(others > 0 ? [plural(others, "other")] : [])].join(", ")}`;
}
