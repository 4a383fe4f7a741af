// The messages that wait for the agent; each can be changed or taken away.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { isComposing } from "../composing";
import { focusField } from "../focus";
import { keep, useKeptBeside } from "../keep";
import type { LiveSession } from "../state/live";
import { fateOf, FATES, type Fate } from "../state/session";
import { changeKey } from "../state/unsent";
import type { QueueItem } from "../wire/event";
import { Icon } from "./Icon";
import { TextField } from "./TextField";

export function Queue({ live }: { live: LiveSession }) {
  const { queue } = live.state.value;
  const [changed, setChanged] = useState<readonly string[]>([]);
  const shown = useRef<readonly QueueItem[]>([]);
  shown.current = withThoseThatLeft(queue, shown.current, changed);
  if (shown.current.length === 0) return null;
  const mark = (item: string, isChanged: boolean) =>
    setChanged((before) => [...before.filter((other) => other !== item), ...(isChanged ? [item] : [])]);
  return (
    <ul class="queue" aria-label="Messages that wait for the agent">
      {shown.current.map((queued) => (
        <Waiting
          key={queued.item}
          live={live}
          queued={queued}
          fate={queue.includes(queued) ? null : fateOf(live.state.value, queued.item)}
          onChanged={mark}
        />
      ))}
    </ul>
  );
}

/** The queue, and in their places those that left it while somebody changes them: neither words nor the focus may get lost. */
function withThoseThatLeft(queue: readonly QueueItem[], before: readonly QueueItem[], changed: readonly string[]): QueueItem[] {
  const shown = [...queue];
  for (const [at, queued] of before.entries()) {
    if (!changed.includes(queued.item) || queue.some(({ item }) => item === queued.item)) continue;
    const earlier = before.slice(0, at).map(({ item }) => item);
    shown.splice(shown.findLastIndex(({ item }) => earlier.includes(item)) + 1, 0, queued);
  }
  return shown;
}

interface WaitingProps {
  live: LiveSession;
  queued: QueueItem;
  /** What became of it, once it has left the queue. */
  fate: Fate | null;
  /** Says whether a change to it is being written. */
  onChanged: (item: string, isChanged: boolean) => void;
}

function Waiting({ live, queued, fate, onChanged }: WaitingProps) {
  const key = changeKey(live.id, queued.item);
  // One that was begun before a reload, or before a look at another session, is gone on with.
  const [edited, setEdited] = useState(() => localStorage.getItem(key));
  const change = edited?.trim() ?? "";
  const asked = useRef(false);
  /** What is kept of it: nothing where it changes nothing. */
  const changeOf = (text: string) => (text.trim() === "" || text.trim() === queued.content ? "" : text);
  useKeptBeside(key, changeOf(edited ?? ""));

  // Before the next frame comes, which may take it out of the queue.
  const isChanged = edited !== null;
  useLayoutEffect(() => onChanged(queued.item, isChanged), [isChanged]);

  const write = (text: string) => {
    setEdited(text);
    keep(key, changeOf(text));
  };
  const close = () => {
    setEdited(null);
    keep(key, "");
    focusField();
  };
  if (edited !== null) {
    const save = () => {
      if (change && fate === null) live.editQueue(queued.item, change);
      // The files of one that was taken are with the agent already.
      if (change && fate !== null) live.message(change, "queue", fate === "removed" ? queued.attachments : []);
      close();
    };
    return (
      <li
        class={fate ? "left" : undefined}
        onKeyDown={(event) => {
          if (event.key !== "Escape" || isComposing(event)) return;
          event.preventDefault();
          close();
        }}
      >
        {fate && <p role="alert">{FATES[fate]}</p>}
        <TextField
          label="Waiting message"
          placeholder=""
          value={edited}
          rows={1}
          focus={asked.current && "asked"}
          onChange={write}
          onSend={save}
          sendLabel={fate ? null : "Keep the change"}
          sendDisabled={!change}
        />
        {fate && (
          <>
            <button type="button" class="button" disabled={!change} onClick={save}>
              {fate === "taken" ? "Send again" : "Queue again"}
            </button>
            <button type="button" class="button" onClick={close}>
              Dismiss
            </button>
          </>
        )}
      </li>
    );
  }
  if (fate) return null;
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
