// State line with the buttons Stop, Pause and Resume.

import { useEffect, useState } from "preact/hooks";
import { now } from "../clock";
import { elapsed, plural } from "../format";
import { activityOf, isResumable, isInterruptible, isWorking } from "../state/activity";
import type { LiveSession } from "../state/liveSession";
import type { ScreenState } from "../state/screenState";
import { BacktickText } from "./BacktickText";
import { Icon } from "./Icon";

const CAUGHT_UP_MS = 4000;

export function StateLine({ live }: { live: LiveSession }) {
  const state = live.state.value;
  const shown = activityOf(state);
  const stopping = live.stopping.value > 0 || state.agentState === "interrupting";
  return (
    <div class="state-line">
      <div class={`state ${shown.tone}`} role="status">
        <span class="state-mark" aria-hidden="true" />
        <span class="state-text" title={stopping ? undefined : [shown.text, shown.code].filter(Boolean).join(" ")}>
          {stopping ? "Stopping…" : <BacktickText text={shown.text} />}
          {!stopping && shown.code && <code>{shown.code}</code>}
        </span>
        {!stopping && shown.since && <Clock since={shown.since} />}
        {!stopping && shown.hint && <span class="hint">{shown.hint}</span>}
      </div>
      <ConnectionStatus live={live} />
      <Controls live={live} state={state} stopping={stopping} />
    </div>
  );
}

function Clock({ since }: { since: string }) {
  // Server and browser clocks may differ. Hidden from screen readers, which would count the
  // seconds.
  return (
    <span class="clock" aria-hidden="true">
      {elapsed(Math.max(0, now.value - Date.parse(since)))}
    </span>
  );
}

function ConnectionStatus({ live }: { live: LiveSession }) {
  const { connection, connections, caughtUp } = live.state.value;
  const [dismissed, setDismissed] = useState(0);

  useEffect(() => {
    if (!caughtUp) return;
    const timer = setTimeout(() => setDismissed(caughtUp.at), CAUGHT_UP_MS);
    return () => clearTimeout(timer);
  }, [caughtUp]);

  if (connection.phase === "lost") {
    return (
      <span class="connection lost" role="status">
        Connection lost. Retrying…{" "}
        <button type="button" class="link" onClick={() => live.retryNow()}>
          Retry now
        </button>
      </span>
    );
  }
  if (connection.phase === "replaying" && connections > 1) return <span class="connection">Catching up…</span>;
  if (caughtUp && caughtUp.at > dismissed) {
    return (
      <span class="connection" role="status">
        {caughtUp.events === 0 ? "Connected again" : `Caught up, ${plural(caughtUp.events, "event")}`}
      </span>
    );
  }
  return null;
}

function Controls({ live, state, stopping }: { live: LiveSession; state: ScreenState; stopping: boolean }) {
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
      {isInterruptible(state) && (
        <button
          type="button"
          class="button stop"
          title={stopping ? "Press again to force the stop" : "Stop (Esc)"}
          onClick={() => live.interrupt()}
        >
          <Icon name="stop" /> {stopping ? "Stopping…" : "Stop"}
        </button>
      )}
    </div>
  );
}
