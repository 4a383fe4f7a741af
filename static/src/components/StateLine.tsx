// State line with the buttons Interrupt, Pause, Resume and Retry.

import { useEffect, useState } from "preact/hooks";
import { plural } from "../format";
import { activityOf, controlsOf, statusOfScreen } from "../state/activity";
import type { LiveSession } from "../state/liveSession";
import { retriableTurn } from "../state/retry";
import type { ScreenState } from "../state/screenState";
import { BacktickText } from "./BacktickText";
import { Icon } from "./Icon";
import { lazy } from "./lazy";
import { RunningTime } from "./RunningTime";

const RetryButton = lazy((later) => later.RetryButton);

const CAUGHT_UP_MS = 4000;

export function StateLine({ live }: { live: LiveSession }) {
  const state = live.state.value;
  const shown = activityOf(state);
  const status = statusOfScreen(state);
  const interrupting = status.source === "server" && (live.interrupting.value > 0 || status.kind === "interrupting");
  return (
    <div class="state-line">
      <div class={`state ${shown.tone}${status.isTicking ? "" : " still"}`} role="status">
        <span class="state-mark" aria-hidden="true" />
        <span class="state-text" title={interrupting ? undefined : [shown.text, shown.code].filter(Boolean).join(" ")}>
          {interrupting ? "Interrupting…" : <BacktickText text={shown.text} />}
          {!interrupting && shown.code && <code>{shown.code}</code>}
        </span>
        {!interrupting && shown.since && <RunningTime since={shown.since} pausedMs={shown.pausedMs} />}
        {!interrupting && shown.hint && <span class={status.source === "away" ? "hint unseen" : "hint"}>{shown.hint}</span>}
      </div>
      <ConnectionStatus live={live} />
      <Controls live={live} state={state} interrupting={interrupting} />
    </div>
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

function Controls({ live, state, interrupting }: { live: LiveSession; state: ScreenState; interrupting: boolean }) {
  const { resume, pause, interrupt, isDisabled } = controlsOf(state);
  return (
    <div class="controls">
      {retriableTurn(state)?.outcome === "failed" && <RetryButton kind="button" />}
      {resume && (
        <button type="button" class="button" disabled={isDisabled} onClick={() => live.resume()}>
          <Icon name="play" /> Resume
        </button>
      )}
      {pause && !interrupting && (
        <button type="button" class="button" disabled={isDisabled} onClick={() => live.pause()}>
          <Icon name="pause" /> Pause
        </button>
      )}
      {interrupt && (
        <button
          type="button"
          class="button stop"
          title={interrupting ? "Press again to force the interrupt" : "Interrupt (Esc)"}
          disabled={isDisabled}
          onClick={() => live.interrupt()}
        >
          <Icon name="stop" /> {interrupting ? "Interrupting…" : "Interrupt"}
        </button>
      )}
    </div>
  );
}
