// What somebody chose to do with a session as a whole: it is asked where it needs an answer, then done.

import { signal } from "@preact/signals";
import type { Session } from "../wire/frame";

export interface Asked {
  session: Session;
  act: "resume" | "rename" | "archive" | "end" | "purge";
}

/** One at a time, wherever it was chosen. */
export const asked = signal<Asked | null>(null);
