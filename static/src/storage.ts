// What this browser keeps for a person over a reload, as far as it has room.

import { useLayoutEffect, useRef, useState } from "preact/hooks";

/**
 * Keeps a text; an empty one is forgotten. Where there is no room it is not kept, and all else goes on. What is of one page alone
 * goes into `sessionStorage`.
 */
export function keep(key: string, text: string, storage = localStorage): void {
  try {
    if (text) storage.setItem(key, text);
    else storage.removeItem(key);
  } catch {
    // What stood there before is not the newest any more.
    storage.removeItem(key);
  }
}

/**
 * Beside other pages with a text of their own under the same key. What is shown here is put back when theirs is done with, and when
 * this page goes: not at once, for each would put back its own for ever. Returns how to end that.
 */
export function keepBeside(key: string, shown: () => string): () => void {
  const found = shown();
  const isKept = () => localStorage.getItem(key) !== null;
  const changed = (event: StorageEvent) => {
    // Where it was the same text, it is done with here as well.
    const isOthers = event.key === key && event.newValue === null && event.oldValue !== shown();
    if (isOthers && shown() && !isKept()) keep(key, shown());
  };
  const leave = () => {
    // What was only found here may have been gone on with elsewhere. And where nothing is kept, this page is done with it.
    if (shown() && shown() !== found && isKept()) keep(key, shown());
  };
  addEventListener("storage", changed);
  addEventListener("pagehide", leave);
  return () => {
    leave();
    removeEventListener("storage", changed);
    removeEventListener("pagehide", leave);
  };
}

/** The same for a text that a component shows. */
export function useKeptBeside(key: string, text: string): void {
  const shown = useRef(text);
  shown.current = text;
  useLayoutEffect(() => keepBeside(key, () => shown.current), [key]);
}

/** What a person writes in a field, and how it is changed. */
export function useKept(key: string): [string, (text: string) => void] {
  const [text, setText] = useState(() => localStorage.getItem(key) ?? "");
  useKeptBeside(key, text);
  const change = (next: string) => {
    setText(next);
    // Emptied, it forgets what it showed, and not what another page has there by now.
    if (next || localStorage.getItem(key) === text) keep(key, next);
  };
  return [text, change];
}
