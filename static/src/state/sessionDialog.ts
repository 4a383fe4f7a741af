// Chosen action on a whole session. Some actions ask for confirmation first.

import { signal } from "@preact/signals";
import type { Session } from "../wire/frame";

export interface SessionDialogRequest {
  session: Session;
  action: "resume" | "rename" | "archive" | "fork" | "end" | "purge";
  /** Absent for a fork from the end of the newest turn that is over. */
  fork?: ForkStart;
}

/** Point at which a fork leaves its session. */
export interface ForkStart {
  /** Number of the newest event that both sessions have. */
  at: number;
  /** Text of the message that follows, to be edited. */
  message?: string;
  /** True if files were attached to the message. */
  hasFiles?: boolean;
}

/** Current dialog. One at a time. */
export const sessionDialog = signal<SessionDialogRequest | null>(null);
