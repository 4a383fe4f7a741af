// Line of a tool call: icon, verb and subject.

import type { IconName } from "../components/Icon";
import type { ToolKind } from "../wire/event";
import { genericCallOf } from "./genericCall";
import type { ToolRow } from "./rows";

interface ToolAppearance {
  icon: IconName;
  /** Verb of a call that has not run. */
  asked: string;
  doing: string;
  done: string;
  /** Argument shown in the line. */
  subject: string;
}

/** Tools with a view of their own. */
export const TOOL_APPEARANCES: Record<string, ToolAppearance> = {
  run: { icon: "terminal", asked: "Run", doing: "Running", done: "Ran", subject: "command" },
  read: { icon: "file", asked: "Read", doing: "Reading", done: "Read", subject: "path" },
  write: { icon: "pencil", asked: "Write", doing: "Writing", done: "Wrote", subject: "path" },
  edit: { icon: "pencil", asked: "Edit", doing: "Editing", done: "Edited", subject: "path" },
  browse: { icon: "globe", asked: "Open", doing: "Opening", done: "Opened", subject: "url" },
};

/** Kinds of generic calls. */
const KINDS: Record<ToolKind, { icon: IconName; label: string }> = {
  read: { icon: "file", label: "Read" },
  edit: { icon: "pencil", label: "Edit" },
  delete: { icon: "cross", label: "Delete" },
  move: { icon: "file", label: "Move" },
  search: { icon: "search", label: "Search" },
  execute: { icon: "terminal", label: "Run" },
  think: { icon: "info", label: "Think" },
  fetch: { icon: "globe", label: "Fetch" },
  switch_mode: { icon: "settings", label: "Switch mode" },
  other: { icon: "tool", label: "Tool" },
};

/** Icon and words of the line. An unknown kind looks like `other`. */
function genericAppearance(row: ToolRow): { icon: IconName; verb: string; subject: string } {
  const { kind, title } = genericCallOf(row);
  const { icon, label } = Object.hasOwn(KINDS, kind) ? KINDS[kind as ToolKind] : KINDS.other;
  return { icon, verb: label, subject: title };
}

/** Returns icon and words of the line. */
export function appearanceOf(row: ToolRow): { icon: IconName; verb: string; subject: string } {
  if (row.name === null) return { icon: "tool", verb: "Preparing the next step", subject: "" };
  if (row.name === "tool") return genericAppearance(row);
  const look = Object.hasOwn(TOOL_APPEARANCES, row.name) ? TOOL_APPEARANCES[row.name] : undefined;
  if (!look) return { icon: "tool", verb: row.end ? "Used" : "Using", subject: row.name };
  const subject = row.args[look.subject];
  return { icon: look.icon, verb: hasNotRun(row) ? look.asked : row.end ? look.done : look.doing, subject: typeof subject === "string" ? subject : "" };
}

/** Reports if the call waits for a decision, or was kept from running by one. */
function hasNotRun(row: ToolRow): boolean {
  return row.decision?.decision === "deny" || isDenied(row) || (row.isHeld === true && row.end === null);
}

/** Reports if a person or the policy denied the call. */
export function isDenied({ end }: ToolRow): boolean {
  return end?.extras.code === "denied";
}

/** Returns the diff of an edit, if any. */
export function diffOf(row: ToolRow): string | null {
  const diff = row.end?.extras.diff;
  return typeof diff === "string" && diff !== "" ? diff : null;
}
