// Modes of a session: the calls that run without a person's decision.

import type { ApprovalMode } from "../wire/event";

export interface ModeFacts {
  mode: ApprovalMode;
  name: string;
  /** Effect in one line. */
  effect: string;
}

/** Modes, from the most careful one. */
export const MODES: readonly ModeFacts[] = [
  { mode: "plan", name: "Plan", effect: "Reads and searches, ends with a plan" },
  { mode: "ask", name: "Ask", effect: "Asks before each change" },
  { mode: "edits", name: "Edits", effect: "Edits files, asks before commands" },
  { mode: "auto", name: "Auto", effect: "Asks only if risky or by rule" },
];

/** Returns the name of a mode. A newer server may have further modes. */
export function modeName(mode: string): string {
  return MODES.find((known) => known.mode === mode)?.name ?? mode;
}

/** Modes in which an approved plan can be carried out. */
export const WORK_MODES = MODES.filter(({ mode }) => mode !== "plan");
