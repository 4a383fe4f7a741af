// Archiving of a session, with a way back.

import { focusSession } from "../dom/focusSession";
import { changeSession } from "../wire/lazyRest";
import type { Session } from "../wire/frame";
import { mergeSessions, refreshSessions } from "./sessionList";
import { showToast } from "./toast";

/**
 * Changes the archived mark of a session. The note's button takes the change back, and the session
 * returns to its place with the focus.
 */
export async function toggleArchivedMark(session: Session): Promise<void> {
  const archived = !session.archived;
  mergeSessions([await changeSession(session.id, { archived })]);
  const name = `“${session.title || "Untitled"}”`;
  showToast({
    text: archived ? `Archived ${name}` : `Unarchived ${name}`,
    actionLabel: "Undo",
    onAction: () => void takeBack(session),
  });
}

async function takeBack(session: Session): Promise<void> {
  try {
    mergeSessions([await changeSession(session.id, { archived: session.archived === true })]);
    await refreshSessions();
    focusSession(session.id);
  } catch (error) {
    const text = `Couldn't undo: ${(error as Error).message}`;
    showToast({ text, actionLabel: "Try again", onAction: () => void takeBack(session) });
  }
}
