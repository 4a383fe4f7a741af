// What the command palette offers. Pure but for the acts themselves.

import type { Session } from "../wire/frame";
import { STATE_WORDS } from "./activity";

export interface PaletteEntry {
  id: string;
  text: string;
  /** Said behind it, and searched as well. */
  note?: string;
  group: "This session" | "Greenroom" | "Sessions";
  act: () => void;
}

/** Sessions that match beyond this many are left to one more word, or to the list's own search. */
const SESSIONS = 30;

export function sessionEntries(sessions: readonly Session[], go: (id: string) => void): PaletteEntry[] {
  return sessions.map(({ id, title, state }) => ({
    id: `session-${id}`,
    text: title || "Untitled",
    note: STATE_WORDS[state] ?? state,
    group: "Sessions",
    act: () => go(id),
  }));
}

/** Those in which every word occurs, of sessions the first few; where a word begins one, those stand first. */
export function matching(entries: readonly PaletteEntry[], query: string): PaletteEntry[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = entries.flatMap((entry) => {
    const text = `${entry.text} ${entry.note ?? ""}`.toLowerCase();
    if (!words.every((word) => text.includes(word))) return [];
    return [{ entry, begins: words.filter((word) => ` ${text}`.includes(` ${word}`)).length }];
  });
  const sorted = found.sort((a, b) => b.begins - a.begins).map(({ entry }) => entry);
  const shown = new Set(sorted.filter(({ group }) => group === "Sessions").slice(0, SESSIONS));
  return sorted.filter((entry) => entry.group !== "Sessions" || shown.has(entry));
}
