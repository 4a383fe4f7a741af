// Playback controls of a recording.

import type { RecordingPlayer } from "../state/recordingPlayer";
import { Icon } from "./Icon";

const SPEEDS = [1, 4, 16];

export function PlayerBar({ player }: { player: RecordingPlayer }) {
  const at = player.at.value;
  const playing = player.playing.value;
  return (
    <div class="player" role="group" aria-label="Recording">
      <button
        type="button"
        class="icon-button"
        aria-label={playing ? "Pause" : "Play"}
        title={playing ? "Pause" : "Play"}
        onClick={() => (playing ? player.pause() : player.play())}
      >
        <Icon name={playing ? "pause" : "play"} />
      </button>
      <input
        type="range"
        aria-label="Position in the recording"
        aria-valuetext={`frame ${at} of ${player.length}`}
        min={0}
        max={player.length}
        value={at}
        onInput={(event) => {
          player.pause();
          player.seek(event.currentTarget.valueAsNumber);
        }}
      />
      <span class="muted player-at">
        {at.toLocaleString("en")} of {player.length.toLocaleString("en")}
      </span>
      <select
        class="field"
        aria-label="Speed"
        value={player.speed.value}
        onChange={(event) => (player.speed.value = Number(event.currentTarget.value))}
      >
        {SPEEDS.map((speed) => (
          <option key={speed} value={speed}>
            {speed}×
          </option>
        ))}
      </select>
    </div>
  );
}
