// Spinner and clock of running work. Both stand still while the session is paused, the server is
// away, or the session comes from a file.

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { serverNow } from "../clock";
import { elapsed } from "../format";

export interface WorkClock {
  isTicking: boolean;
  /** Label of marks that stand still. */
  label: string;
}

export const WorkClockContext = createContext<WorkClock>({ isTicking: true, label: "" });

interface RunningTimeProps {
  /** Start, RFC 3339 on the server's clock. */
  since: string | undefined;
  /** Finished pauses since the start, in milliseconds. */
  pausedMs?: number | undefined;
}

/** Time since a start without pauses. Hidden from screen readers, which would count the seconds. */
export function RunningTime({ since, pausedMs = 0 }: RunningTimeProps) {
  const { isTicking } = useContext(WorkClockContext);
  const now = isTicking ? serverNow() : null;
  if (now === null || since === undefined) return null;
  const text = elapsed(Math.max(0, now - Date.parse(since) - pausedMs));
  if (text === "") return null;
  return (
    <span class="clock" aria-hidden="true">
      {text}
    </span>
  );
}

export function RunningMark() {
  const { isTicking, label } = useContext(WorkClockContext);
  return <span class={isTicking ? "spinner" : "spinner still"} role="img" aria-label={isTicking ? "running" : label} />;
}
