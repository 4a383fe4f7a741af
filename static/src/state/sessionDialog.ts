// Chosen action on a whole session. Some actions ask for confirmation first.

import { signal } from "@preact/signals";
import type { Session } from "../wire/frame";

export interface SessionDialogRequest {
  session: Session;
  action: "resume" | "rename" | "archive" | "end" | "purge";
}

/** Current dialog. One at a time. */
export const sessionDialog = signal<SessionDialogRequest | null>(null);
