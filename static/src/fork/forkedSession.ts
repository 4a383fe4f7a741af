// Session that another one was forked from, as far as it is known.

import { useEffect, useState } from "preact/hooks";
import { mergeSessions, sessionOf } from "../state/sessionList";
import { getSession, RestError } from "../wire/rest";

/** Forked session. Without a title until it is known. */
export interface ForkedSession {
  title: string | undefined;
  /** True if the server has deleted it. */
  isGone: boolean;
}

/** Returns a forked session, and requests it from the server if the list lacks it. */
export function useForkedSession(id: string): ForkedSession {
  const [goneId, setGoneId] = useState<string | null>(null);
  const known = sessionOf(id);
  const isKnown = known !== undefined;
  useEffect(() => {
    if (isKnown) return;
    const failed = (error: unknown) => error instanceof RestError && error.isNotFound && setGoneId(id);
    void getSession(id).then((session) => mergeSessions([session]), failed);
  }, [id, isKnown]);
  return { title: known && (known.title || "Untitled"), isGone: goneId === id };
}

/** Returns the address of the event at which a session was forked. */
export const forkAddress = (id: string, at: number): string => `/sessions/${encodeURIComponent(id)}?at=${at}`;
