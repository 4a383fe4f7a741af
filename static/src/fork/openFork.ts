// Request for a fork of the session on the screen.

import { currentLive } from "../state/currentSession";
import { sessionDialog, type ForkStart } from "../state/sessionDialog";
import { sessionOf } from "../state/sessionList";

/** Opens the dialog. A recording has no session to fork. */
export function openFork(fork: ForkStart): void {
  const live = currentLive.peek();
  const session = live && (sessionOf(live.id) ?? live.state.peek().session);
  if (session) sessionDialog.value = { session, action: "fork", fork };
}
