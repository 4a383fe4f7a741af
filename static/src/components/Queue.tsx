// Queued messages, each editable and removable.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { isComposing } from "../dom/ime";
import { focusField } from "../dom/focusField";
import { storeText, useAcrossTabs } from "../storage";
import type { LiveSession } from "../state/liveSession";
import { queueExitOf, QUEUE_EXIT_TEXTS, type QueueExit } from "../state/screenState";
import { queueEditKey } from "../state/pendingStorage";
import type { QueueItem } from "../wire/event";
import { Icon } from "./Icon";
import { TextField } from "./TextField";

export function Queue({ live }: { live: LiveSession }) {
  const { queue } = live.state.value;
  const [changed, setChanged] = useState<readonly string[]>([]);
  const shown = useRef<readonly QueueItem[]>([]);
  shown.current = withEditedLeavers(queue, shown.current, changed);
  if (shown.current.length === 0) return null;
  const mark = (item: string, isChanged: boolean) =>
    setChanged((before) => [...before.filter((other) => other !== item), ...(isChanged ? [item] : [])]);
  return (
    <ul class="queue" aria-label="Queued messages">
      {shown.current.map((queued) => (
        <QueueEntry
          key={queued.item}
          live={live}
          queued={queued}
          exit={queue.includes(queued) ? null : queueExitOf(live.state.value, queued.item)}
          onChanged={mark}
        />
      ))}
    </ul>
  );
}

/**
 * Returns the queue plus messages that left it while being edited, in their places. Text and focus
 * survive.
 */
function withEditedLeavers(queue: readonly QueueItem[], before: readonly QueueItem[], changed: readonly string[]): QueueItem[] {
  const shown = [...queue];
  for (const [at, queued] of before.entries()) {
    if (!changed.includes(queued.item) || queue.some(({ item }) => item === queued.item)) continue;
    const earlier = before.slice(0, at).map(({ item }) => item);
    shown.splice(shown.findLastIndex(({ item }) => earlier.includes(item)) + 1, 0, queued);
  }
  return shown;
}

interface QueueEntryProps {
  live: LiveSession;
  queued: QueueItem;
  /** Fate of the message after leaving the queue. */
  exit: QueueExit | null;
  /** Reports if an edit is open. */
  onChanged: (item: string, isChanged: boolean) => void;
}

function QueueEntry({ live, queued, exit, onChanged }: QueueEntryProps) {
  const key = queueEditKey(live.id, queued.item);
  // An edit survives a reload and a visit to another session.
  const [edited, setEdited] = useState(() => localStorage.getItem(key));
  const change = edited?.trim() ?? "";
  const focusRequested = useRef(false);
  /** Returns the text to store. Empty if nothing changes. */
  const changeOf = (text: string) => (text.trim() === "" || text.trim() === queued.content ? "" : text);
  useAcrossTabs(key, changeOf(edited ?? ""));

  // Runs before the next frame, which may remove the message.
  const isChanged = edited !== null;
  useLayoutEffect(() => onChanged(queued.item, isChanged), [isChanged]);

  const write = (text: string) => {
    setEdited(text);
    storeText(key, changeOf(text));
  };
  const close = () => {
    setEdited(null);
    storeText(key, "");
    focusField();
  };
  if (edited !== null) {
    const save = () => {
      if (change && exit === null) live.editQueue(queued.item, change);
      // Files of a delivered message already reached the agent.
      if (change && exit !== null) live.message(change, "queue", exit === "removed" ? queued.attachments : []);
      close();
    };
    return (
      <li
        class={exit ? "left" : undefined}
        onKeyDown={(event) => {
          if (event.key !== "Escape" || isComposing(event)) return;
          event.preventDefault();
          close();
        }}
      >
        {exit && <p role="alert">{QUEUE_EXIT_TEXTS[exit]}</p>}
        <TextField
          label="Queued message"
          placeholder=""
          value={edited}
          rows={1}
          focus={focusRequested.current && "asked"}
          onChange={write}
          onSend={save}
          sendLabel={exit ? null : "Save change"}
          sendDisabled={!change}
        />
        {exit && (
          <>
            <button type="button" class="button" disabled={!change} onClick={save}>
              {exit === "taken" ? "Send again" : "Queue again"}
            </button>
            <button type="button" class="button" onClick={close}>
              Dismiss
            </button>
          </>
        )}
      </li>
    );
  }
  if (exit) return null;
  const edit = () => {
    focusRequested.current = true;
    setEdited(queued.content);
  };
  const remove = () => {
    live.removeFromQueue(queued.item);
    focusField();
  };
  return (
    <li>
      <span class="queue-mark">queued</span>
      <span class="queue-text" dir="auto">
        {queued.content}
      </span>
      <button type="button" class="icon-button" aria-label="Edit" title="Edit" onClick={edit}>
        <Icon name="pencil" />
      </button>
      <button type="button" class="icon-button" aria-label="Remove" title="Remove" onClick={remove}>
        <Icon name="cross" />
      </button>
    </li>
  );
}
