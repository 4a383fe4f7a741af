// Requests for a session's first screen, sent by the earliest script, before the page is drawn.

import { route } from "../route";
import type { SessionEvent } from "./event";
import type { Session } from "./frame";
import { getSession, newestEvents } from "./rest";
import { lacksSecret } from "./secret";

interface EarlySession {
  id: string;
  session: Promise<Session>;
  /** Newest events, oldest first. */
  events: Promise<SessionEvent[]>;
}

/** Number of events that are requested. Slightly more than a window shows. */
const NEWEST_COUNT = 60;

/** `null` on other pages, and without a sign-in. */
export const earlySession: EarlySession | null = request();

function request(): EarlySession | null {
  const shown = route.peek();
  if (shown.page !== "session" || lacksSecret()) return null;
  const { id } = shown;
  const early = { id, session: getSession(id), events: newestEvents(id, NEWEST_COUNT) };
  // Both failures are reported again by the session's socket.
  early.session.catch(() => {});
  early.events.catch(() => {});
  return early;
}

let taken = false;

/** Returns the newest events of a session. The early ones are returned once, because they age. */
export function takeNewestEvents(id: string): Promise<SessionEvent[]> {
  if (taken || earlySession?.id !== id) return newestEvents(id, NEWEST_COUNT);
  taken = true;
  return earlySession.events;
}
