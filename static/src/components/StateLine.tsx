// What the session does right now, and beside it the buttons that stop, pause and resume it.

import { useEffect, useState } from "preact/hooks";
import { now } from "../clock";
import { elapsed, plural } from "../format";
import { activity, isResumable, isStoppable, isWorking } from "../state/activity";
import type { LiveSession } from "../state/live";
import type { SessionState } from "../state/session";
import { Icon } from "./Icon";

const CAUGHT_UP_MS = 4000;

export function StateLine({ live }: { live: LiveSession }) {
  const state = live.state.value;
  const shown = activity(state);
  const stopping = live.stopping.value > 0 || state.agentState === "interrupting";
  return (
    <div class="state-line">
      <div class={`state ${shown.tone}`} role="status">
        <span class="state-mark" aria-hidden="true" />
        <span class="state-text" title={stopping ? undefined : [shown.text, shown.code].filter(Boolean).join(" ")}>
          {stopping ? "Stopping…" : shown.text}
          {!stopping && shown.code && <code>{shown.code}</code>}
        </span>
        {!stopping && shown.since && <Clock since={shown.since} />}
        {!stopping && shown.hint && <span class="hint">{shown.hint}</span>}
      </div>
      <Connection live={live} />
      <Controls live={live} state={state} stopping={stopping} />
    </div>
  );
}

function Clock({ since }: { since: string }) {
  // The clocks of server and browser may differ a little.
  // Not said aloud: a screen reader would count the seconds.
  return (
    <span class="clock" aria-hidden="true">
      {elapsed(Math.max(0, now.value - Date.parse(since)))}
    </span>
  );
}

function Connection({ live }: { live: LiveSession }) {
  const { connection, connections, caughtUp } = live.state.value;
  const [told, setTold] = useState(0);

  useEffect(() => {
    if (!caughtUp) return;
    const timer = setTimeout(() => setTold(caughtUp.at), CAUGHT_UP_MS);
    return () => clearTimeout(timer);
  }, [caughtUp]);

  if (connection.phase === "lost") {
    return (
      <span class="connection lost" role="status">
        Connection lost, trying again{" "}
        <button type="button" class="link" onClick={() => live.retryNow()}>
          now
        </button>
      </span>
    );
  }
  if (connection.phase === "replaying" && connections > 1) return <span class="connection">Catching up…</span>;
  if (caughtUp && caughtUp.at > told) {
    return (
      <span class="connection" role="status">
        {caughtUp.events === 0 ? "Connected again" : `Caught up, ${plural(caughtUp.events, "event")}`}
      </span>
    );
  }
  return null;
}

function Controls({ live, state, stopping }: { live: LiveSession; state: SessionState; stopping: boolean }) {
  return (
    <div class="controls">
      {isResumable(state) && (
        <button type="button" class="button" onClick={() => live.resume()}>
          <Icon name="play" /> Resume
        </button>
      )}
      {isWorking(state.agentState) && !stopping && (
        <button type="button" class="button" onClick={() => live.pause()}>
          <Icon name="pause" /> Pause
        </button>
      )}
      {isStoppable(state) && (
        <button
          type="button"
          class="button stop"
          title={stopping ? "Press again to stop it by force" : "Stop (Esc)"}
          onClick={() => live.interrupt()}
        >
          <Icon name="stop" /> {stopping ? "Stopping…" : "Stop"}
        </button>
      )}
    </div>
  );
}
