// Entries of the command palette. Pure, except for the actions.

import type { Session } from "../wire/frame";
import { statusOf } from "./sessionStatus";

export interface PaletteEntry {
  id: string;
  text: string;
  /** Shown after the text, and searched as well. */
  note?: string;
  group: "Sessions" | "This session" | "Greenroom" | "Search";
  run: () => void;
}

/** Limit of matching sessions. More words or the list's search find the others. */
const MAX_SESSIONS = 30;
/** Sessions shown before a text is typed, so that the actions below stay in sight. */
const RECENT_SESSIONS = 6;

export function sessionEntries(sessions: readonly Session[], go: (id: string) => void): PaletteEntry[] {
  return sessions.map(({ id, title, state, reason }) => ({
    id: `session-${id}`,
    text: title || "Untitled",
    note: statusOf({ state, reason }).label,
    group: "Sessions",
    run: () => go(id),
  }));
}

/** Returns the entry that searches the conversations, if a text is typed. It matches any text. */
export function searchEntries(query: string, search: (text: string) => void): PaletteEntry[] {
  const text = query.trim();
  if (text === "") return [];
  return [{ id: "search", text: `Search conversations for “${text}”`, group: "Search", run: () => search(text) }];
}

/**
 * Returns entries that contain every word, with a limit for sessions. Matches at the start of a
 * word come first.
 */
export function matching(entries: readonly PaletteEntry[], query: string): PaletteEntry[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = entries.flatMap((entry) => {
    const text = `${entry.text} ${entry.note ?? ""}`.toLowerCase();
    if (!words.every((word) => text.includes(word))) return [];
    return [{ entry, begins: words.filter((word) => ` ${text}`.includes(` ${word}`)).length }];
  });
  const sorted = found.sort((a, b) => b.begins - a.begins).map(({ entry }) => entry);
  const shown = new Set(sorted.filter(({ group }) => group === "Sessions").slice(0, words.length === 0 ? RECENT_SESSIONS : MAX_SESSIONS));
  return sorted.filter((entry) => entry.group !== "Sessions" || shown.has(entry));
}
