// Row of the conversation that an address points at.

import { signal } from "@preact/signals";

/** Row to show and to mark. */
export interface RevealedRow {
  session: string;
  /** Key of the row. Changes if earlier events give the row its final key. */
  key: string;
  /** Identifies the visit. Each visit scrolls to its row once. */
  visit: object;
}

export const revealedRow = signal<RevealedRow | null>(null);
