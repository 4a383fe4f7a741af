// Scope of the shown changes, and the names of checkpoints. Pure.

import type { ChangeRange, CheckpointEntry } from "./checkpointsRest";

/** `turn`: the newest turn. `seen`: since the user last looked. `at:ID`: up to a checkpoint. */
export type ChangeScope = "turn" | "seen" | "all" | `at:${string}`;

/** Workspace before the first turn. The list lacks it if the workspace was empty. */
export const START = "start";

interface ScopeFacts {
  /** Checkpoints, oldest first. */
  items: readonly CheckpointEntry[];
  /** Newest checkpoint of the last look. `null`: none yet. */
  seen: string | null;
  /** True while a turn runs. */
  isInTurn: boolean;
}

/** Returns the two points that a scope compares. `null`: there is nothing to compare yet. */
export function rangeOf(scope: ChangeScope, { items, seen, isInTurn }: ScopeFacts): ChangeRange | null {
  const newest = items.at(-1);
  if (!newest) return null;
  switch (scope) {
    case "turn": {
      const last = items.findLastIndex(({ kind }) => kind === "turn");
      return isInTurn || last < 0 ? { from: newest.checkpoint, to: "now" } : rangeUpTo(items, last);
    }
    case "seen":
      return { from: items.find(({ checkpoint }) => checkpoint === seen)?.checkpoint ?? START, to: "now" };
    case "all":
      return { from: START, to: "now" };
    default: {
      const at = items.findIndex(({ checkpoint }) => scope === `at:${checkpoint}`);
      return at < 0 ? { from: START, to: "now" } : rangeUpTo(items, at);
    }
  }
}

function rangeUpTo(items: readonly CheckpointEntry[], at: number): ChangeRange {
  return { from: items[at - 1]?.checkpoint ?? START, to: items[at]!.checkpoint };
}

/** Returns the name of a checkpoint for the user. Turns are counted. */
export function checkpointName(items: readonly CheckpointEntry[], checkpoint: string): string {
  const at = items.findIndex((item) => item.checkpoint === checkpoint);
  switch (items[at]?.kind) {
    case undefined:
      return checkpoint === START ? "Start" : checkpoint;
    case "start":
      return "Start";
    case "turn":
      return `Turn ${items.slice(0, at + 1).filter(({ kind }) => kind === "turn").length}`;
    case "restore":
      return "After a restore";
    case "before_restore":
      return "Before a restore";
  }
}

/** Returns the name with the time of the capture. */
export function checkpointLabel(items: readonly CheckpointEntry[], { checkpoint, at, partial }: CheckpointEntry): string {
  const time = new Date(at).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
  return `${checkpointName(items, checkpoint)}, ${time}${partial ? " (partial)" : ""}`;
}
