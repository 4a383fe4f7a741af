// The messages that wait for the agent; each can be changed or taken away.

import { useState } from "preact/hooks";
import type { LiveSession } from "../state/live";
import type { QueueItem } from "../wire/event";
import { Icon } from "./Icon";
import { TextField } from "./TextField";

export function Queue({ live }: { live: LiveSession }) {
  const { queue } = live.state.value;
  if (queue.length === 0) return null;
  return (
    <ul class="queue" aria-label="Messages that wait for the agent">
      {queue.map((queued) => (
        <Waiting key={queued.item} live={live} queued={queued} />
      ))}
    </ul>
  );
}

function Waiting({ live, queued }: { live: LiveSession; queued: QueueItem }) {
  const [edited, setEdited] = useState<string | null>(null);
  if (edited !== null) {
    const keep = () => {
      if (edited.trim()) live.editQueue(queued.item, edited.trim());
      setEdited(null);
    };
    return (
      <li
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.preventDefault();
          setEdited(null);
        }}
      >
        <TextField
          label="Waiting message"
          placeholder=""
          value={edited}
          rows={1}
          focus
          onChange={setEdited}
          onSend={keep}
          sendLabel="Keep the change"
          sendDisabled={!edited.trim()}
        />
      </li>
    );
  }
  return (
    <li>
      <span class="queue-mark">queued</span>
      <span class="queue-text">{queued.content}</span>
      <button type="button" class="icon-button" aria-label="Edit" title="Edit" onClick={() => setEdited(queued.content)}>
        <Icon name="pencil" />
      </button>
      <button type="button" class="icon-button" aria-label="Remove" title="Remove" onClick={() => live.removeFromQueue(queued.item)}>
        <Icon name="cross" />
      </button>
    </li>
  );
}
