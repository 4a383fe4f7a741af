// The messages that wait for the agent; each can be changed or taken away.

import { useEffect, useRef, useState } from "preact/hooks";
import { isComposing } from "../composing";
import { focusField } from "../focus";
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
  const change = edited?.trim() ?? "";

  // It may go away while somebody writes: neither what they wrote nor what they still type may get lost.
  const leave = useRef(() => {});
  leave.current = () => {
    if (edited === null) return;
    focusField();
    if (change && change !== queued.content) live.missedInQueue(queued.item, change);
  };
  useEffect(() => () => leave.current(), []);

  const close = () => {
    setEdited(null);
    focusField();
  };
  if (edited !== null) {
    const keep = () => {
      if (change) live.editQueue(queued.item, change);
      close();
    };
    return (
      <li
        onKeyDown={(event) => {
          if (event.key !== "Escape" || isComposing(event)) return;
          event.preventDefault();
          close();
        }}
      >
        <TextField
          label="Waiting message"
          placeholder=""
          value={edited}
          rows={1}
          focus="asked"
          onChange={setEdited}
          onSend={keep}
          sendLabel="Keep the change"
          sendDisabled={!change}
        />
      </li>
    );
  }
  const remove = () => {
    live.removeFromQueue(queued.item);
    focusField();
  };
  return (
    <li>
      <span class="queue-mark">queued</span>
      <span class="queue-text">{queued.content}</span>
      <button type="button" class="icon-button" aria-label="Edit" title="Edit" onClick={() => setEdited(queued.content)}>
        <Icon name="pencil" />
      </button>
      <button type="button" class="icon-button" aria-label="Remove" title="Remove" onClick={remove}>
        <Icon name="cross" />
      </button>
    </li>
  );
}
