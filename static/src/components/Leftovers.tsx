// Processes that commands left behind, each with a button that ends it.

import { serverNow } from "../clock";
import { bytes, elapsed } from "../format";
import type { LiveSession } from "../state/liveSession";
import type { LeftoverProcess } from "../wire/event";

export function Leftovers({ live }: { live: LiveSession }) {
  const { leftovers, agentState, connection } = live.state.value;
  const isWatched = connection.phase === "live" && agentState !== "paused";
  if (!leftovers || connection.phase === "recorded") return null;
  // Frozen processes do not age, and an absent server reports none.
  const now = isWatched ? serverNow() : null;
  const since = now === null ? 0 : now - Date.parse(leftovers.at);
  return (
    <section class="leftovers" aria-label="Left running">
      <header>
        <h2>Left running</h2>
        {agentState === "idle" && (
          <button type="button" class="button" onClick={() => live.interrupt()}>
            End all
          </button>
        )}
      </header>
      <ul>
        {leftovers.items.map((process) => (
          <Leftover key={process.pid} process={process} since={since} end={() => live.killProcess(process.pid)} />
        ))}
      </ul>
      {leftovers.more > 0 && <p class="muted">and {leftovers.more} more</p>}
    </section>
  );
}

interface LeftoverProps {
  process: LeftoverProcess;
  /** Time since the report, in milliseconds. */
  since: number;
  end: () => void;
}

function Leftover({ process: { pid, name, age_s, memory_bytes }, since, end }: LeftoverProps) {
  return (
    <li>
      <code title={name}>{name}</code>
      <span class="muted">
        {[pid, elapsed(age_s * 1000 + Math.max(0, since)), bytes(memory_bytes)].filter(Boolean).join(" · ")}
      </span>
      <button type="button" class="button" aria-label={`End process ${pid}`} onClick={end}>
        End
      </button>
    </li>
  );
}
