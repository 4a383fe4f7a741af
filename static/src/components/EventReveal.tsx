// Shows the event that the address names, and a note until it is there.

import { useEffect, useState } from "preact/hooks";
import type { LiveSession } from "../state/liveSession";
import { revealEvent } from "../state/revealEvent";
import { ErrorNotice } from "./ErrorNotice";

interface EventRevealProps {
  live: LiveSession;
  /** Event to show. A new object, even with the same number, shows it again. */
  target: { at?: number };
}

export function EventReveal({ live, target }: EventRevealProps) {
  const [problem, setProblem] = useState<string | null>(null);
  const [isFound, setFound] = useState(false);
  const [attempt, setAttempt] = useState(0);
  const { at } = target;
  useEffect(() => {
    if (at === undefined) return;
    const closing = new AbortController();
    setProblem(null);
    setFound(false);
    revealEvent(live, at, closing.signal, () => setFound(true)).catch((error: Error) => !closing.signal.aborted && setProblem(error.message));
    return () => closing.abort();
  }, [live, target, attempt]);
  if (at === undefined) return null;
  if (problem) return <ErrorNotice text={`Couldn't show the event: ${problem}`} onRetry={() => setAttempt(attempt + 1)} />;
  return isFound ? null : (
    <p class="muted centred" role="status">
      Looking for the message…
    </p>
  );
}
