// The messages that wait for the agent; each can be changed or taken away.

import { useEffect, useRef, useState } from "preact/hooks";
import { isComposing } from "../composing";
import { focusField } from "../focus";
import { keep } from "../keep";
import type { LiveSession } from "../state/live";
import { changeKey } from "../state/unsent";
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
  const key = changeKey(live.id, queued.item);
  // One that was begun before a reload, or before a look at another session, is gone on with.
  const [edited, setEdited] = useState(() => localStorage.getItem(key));
  const change = edited?.trim() ?? "";
  const asked = useRef(false);
  const isChange = (text: string) => text !== "" && text !== queued.content;

  const line = useRef<HTMLLIElement>(null);

  // It may leave the queue while somebody writes: neither what they wrote nor what they still type may get lost.
  const leave = useRef(() => {});
  leave.current = () => {
    if (edited === null || live.state.peek().queue.some(({ item }) => item === queued.item)) return;
    keep(key, "");
    // Whoever writes elsewhere goes on there.
    if (line.current?.contains(document.activeElement)) focusField();
    if (isChange(change)) live.missedInQueue(queued.item, change);
  };
  useEffect(() => () => leave.current(), []);

  const write = (text: string) => {
    setEdited(text);
    keep(key, isChange(text.trim()) ? text : "");
  };
  const close = () => {
    setEdited(null);
    keep(key, "");
    focusField();
  };
  if (edited !== null) {
    const save = () => {
      if (change) live.editQueue(queued.item, change);
      close();
    };
    return (
      <li
        ref={line}
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
          focus={asked.current && "asked"}
          onChange={write}
          onSend={save}
          sendLabel="Keep the change"
          sendDisabled={!change}
        />
      </li>
    );
  }
  const edit = () => {
    asked.current = true;
    setEdited(queued.content);
  };
  const remove = () => {
    live.removeFromQueue(queued.item);
    focusField();
  };
  return (
    <li>
      <span class="queue-mark">queued</span>
      <span class="queue-text">{queued.content}</span>
      <button type="button" class="icon-button" aria-label="Edit" title="Edit" onClick={edit}>
        <Icon name="pencil" />
      </button>
      <button type="button" class="icon-button" aria-label="Remove" title="Remove" onClick={remove}>
        <Icon name="cross" />
      </button>
    </li>
  );
}
