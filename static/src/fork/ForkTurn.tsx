// Action of a turn that is over: fork the session there.

import { currentLive } from "../state/currentSession";
import { openFork } from "./openFork";

/** `end`: number of the turn's last event. */
export function ForkTurn({ end }: { end: number }) {
  if (!currentLive.value) return null;
  return (
    <button type="button" class="link" title="Start a new session from here" onClick={() => openFork({ at: end })}>
      Fork from here
    </button>
  );
}
