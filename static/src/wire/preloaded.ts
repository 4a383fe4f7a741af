// Data embedded in a session's page, so the first paint is complete.

import type { SessionEvent } from "./event";
import type { Session } from "./frame";
import { newestEvents } from "./rest";

interface PreloadedSession {
  session: Session;
  /** Newest events, oldest first. */
  events: SessionEvent[];
}

/** Number of events requested without preloaded ones. Slightly more than a window shows. */
const NEWEST_COUNT = 60;

/** `null` on other pages, and if the server could not answer at once. */
export const preloaded: PreloadedSession | null = read();

function read(): PreloadedSession | null {
  try {
    return JSON.parse(document.getElementById("given")?.textContent || "null") as PreloadedSession | null;
  } catch {
    // The connection broke inside the page.
    return null;
  }
}

let taken = false;

/**
 * Returns the newest events of a session. The preloaded ones are returned once, because they age.
 */
export function takeNewestEvents(id: string): SessionEvent[] | Promise<SessionEvent[]> {
  if (taken || preloaded?.session.id !== id) return newestEvents(id, NEWEST_COUNT);
  taken = true;
  return preloaded.events;
}
