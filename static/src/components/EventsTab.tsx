// Raw frames, both ways, newest last: filter, details, download.

import { useRef, useState } from "preact/hooks";
import { DEFAULT_FILTER, kindOf, latency, FilteredFrames, summary, type FrameFilter } from "../state/frameFilter";
import { latencyText } from "../format";
import type { LiveSession } from "../state/liveSession";
import { toJsonLines, type LoggedFrame } from "../wire/frameLog";
import { isTouchScreen } from "../dom/focusField";
import { downloadText } from "../dom/download";
import { WorkspaceIcon } from "../files/WorkspaceIcon";
import { Icon } from "./Icon";
import { LongList } from "./LongList";

/** Row heights in pixels, for a mouse and for a finger. */
const ROW_HEIGHT = 28;
const TOUCH_ROW_HEIGHT = 44;

const WAYS: readonly { way: FrameFilter["way"]; text: string }[] = [
  { way: "both", text: "Both ways" },
  { way: "in", text: "Received" },
  { way: "out", text: "Sent" },
];

export function EventsTab({ live }: { live: LiveSession }) {
  const [filter, setFilter] = useState(DEFAULT_FILTER);
  const [chosen, setChosen] = useState<LoggedFrame | null>(null);
  const filtered = useRef(new FilteredFrames());
  // The log is no signal. It changes together with the state.
  void live.state.value;
  const all = live.log.entries;
  const shown = filtered.current.of(all, filter);

  return (
    <div class="events">
      <div class="events-bar">
        <label class="search">
          <Icon name="search" />
          <input
            type="search"
            placeholder="Filter"
            aria-label="Filter the frames"
            value={filter.text}
            onInput={(event) => setFilter({ ...filter, text: event.currentTarget.value })}
          />
        </label>
        <select
          class="field"
          aria-label="Direction"
          value={filter.way}
          onChange={(event) => setFilter({ ...filter, way: event.currentTarget.value as FrameFilter["way"] })}
        >
          {WAYS.map(({ way, text }) => (
            <option key={way} value={way}>
              {text}
            </option>
          ))}
        </select>
        <label class="check">
          <input
            type="checkbox"
            checked={filter.deltas}
            onChange={(event) => setFilter({ ...filter, deltas: event.currentTarget.checked })}
          />
          Deltas
        </label>
        <button
          type="button"
          class="icon-button"
          aria-label="Download these frames as JSONL"
          title="Download these frames as JSONL"
          onClick={() => downloadText(`greenroom-${live.id}-frames.jsonl`, "application/x-ndjson", toJsonLines(shown))}
        >
          <WorkspaceIcon name="download" />
        </button>
      </div>
      <LongList
        label="Frames"
        count={shown.length}
        rowHeight={isTouchScreen() ? TOUCH_ROW_HEIGHT : ROW_HEIGHT}
        row={(index) => {
          const entry = shown[index];
          return entry && <FrameRow key={entry.n} entry={entry} all={all} chosen={entry === chosen} onChoose={setChosen} />;
        }}
      />
      <p class="events-count muted" role="status">
        {shown.length.toLocaleString("en")} of {all.length.toLocaleString("en")} frames
      </p>
      {chosen && <FrameDetails entry={chosen} onClose={() => setChosen(null)} />}
    </div>
  );
}

interface FrameRowProps {
  entry: LoggedFrame;
  all: readonly LoggedFrame[];
  chosen: boolean;
  onChoose: (entry: LoggedFrame) => void;
}

function FrameRow({ entry, all, chosen, onChoose }: FrameRowProps) {
  const { family, name } = kindOf(entry);
  const took = latency(entry, all);
  return (
    <button type="button" class={chosen ? "frame chosen" : "frame"} aria-pressed={chosen} onClick={() => onChoose(entry)}>
      <span class="frame-way" title={entry.way === "in" ? "Received" : "Sent"}>
        {entry.way === "in" ? "↓" : "↑"}
      </span>
      <span class="frame-seq">{"seq" in entry.frame ? entry.frame.seq : ""}</span>
      <span class={`frame-kind ${family}`}>{name}</span>
      <span class="frame-text">{summary(entry)}</span>
      <span class="frame-took" title="Time from the server or the request">
        {took === null ? "" : latencyText(took)}
      </span>
    </button>
  );
}

function FrameDetails({ entry, onClose }: { entry: LoggedFrame; onClose: () => void }) {
  return (
    <div class="frame-opened" role="region" aria-label="Selected frame">
      <header>
        <span class="muted">
          {entry.way === "in" ? "Received" : "Sent"} {new Date(entry.at).toLocaleTimeString()}
        </span>
        <button type="button" class="icon-button" aria-label="Close the frame" title="Close the frame" onClick={onClose}>
          <Icon name="cross" />
        </button>
      </header>
      <pre class="code" tabIndex={0}>
        {JSON.stringify(entry.frame, null, 2)}
      </pre>
    </div>
  );
}
