// Note about a completed action, with a button that takes it back.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { TOAST_MS, toast, type ToastNote } from "../state/toast";
import { Icon } from "./Icon";

export function Toast({ note }: { note: ToastNote }) {
  const [isHeld, setHeld] = useState(false);
  const action = useRef<HTMLButtonElement>(null);
  const close = () => {
    if (toast.peek() === note) toast.value = null;
  };

  // The pressed menu leaves the list with its session, so the next key takes the change back.
  useLayoutEffect(() => {
    const { activeElement } = document;
    if (!activeElement || activeElement === document.body || activeElement.closest(".session-item")) action.current?.focus();
  }, [note]);

  useEffect(() => {
    if (isHeld) return;
    const timer = setTimeout(close, TOAST_MS);
    return () => clearTimeout(timer);
  }, [note, isHeld]);

  return (
    <div
      class="toast"
      onPointerEnter={() => setHeld(true)}
      onPointerLeave={() => setHeld(false)}
      onFocusIn={(event) => setHeld((event.target as Element).matches(":focus-visible"))}
      onFocusOut={() => setHeld(false)}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.preventDefault();
        event.stopPropagation();
        close();
      }}
    >
      <span class="toast-text" dir="auto">{note.text}</span>
      <button
        ref={action}
        type="button"
        class="button"
        onClick={() => {
          close();
          note.onAction();
        }}
      >
        {note.actionLabel}
      </button>
      <button type="button" class="icon-button" aria-label="Close" title="Close" onClick={close}>
        <Icon name="cross" />
      </button>
    </div>
  );
}
