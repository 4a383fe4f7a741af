// Browser storage that survives a reload, within the quota.

import { useLayoutEffect, useRef, useState } from "preact/hooks";

/**
 * Stores a text; an empty text removes the key. Without room, the key is removed and nothing fails.
 * `sessionStorage` holds texts of one page.
 */
export function storeText(key: string, text: string, storage = localStorage): void {
  try {
    if (text) storage.setItem(key, text);
    else storage.removeItem(key);
  } catch {
    // The former value is outdated.
    storage.removeItem(key);
  }
}

/**
 * Keeps a text against other tabs that use the same key. The shown text is stored again after
 * another tab clears the key, and when this page closes. Storing it at once would make two tabs
 * overwrite each other for ever. Returns a function that ends this.
 */
export function keepAcrossTabs(key: string, shown: () => string): () => void {
  const found = shown();
  const isStored = () => localStorage.getItem(key) !== null;
  const changed = (event: StorageEvent) => {
    // An identical text in the other tab counts as handled here, too.
    const isOtherTab = event.key === key && event.newValue === null && event.oldValue !== shown();
    if (isOtherTab && shown() && !isStored()) storeText(key, shown());
  };
  const leave = () => {
    // An unchanged text may be newer in another tab. A cleared key means that this page's text was
    // handled.
    if (shown() && shown() !== found && isStored()) storeText(key, shown());
  };
  addEventListener("storage", changed);
  addEventListener("pagehide", leave);
  return () => {
    leave();
    removeEventListener("storage", changed);
    removeEventListener("pagehide", leave);
  };
}

/** Applies `keepAcrossTabs` to the text of a component. */
export function useAcrossTabs(key: string, text: string): void {
  const shown = useRef(text);
  shown.current = text;
  useLayoutEffect(() => keepAcrossTabs(key, () => shown.current), [key]);
}

/** Returns a stored text and its setter, for a text field. */
export function useStoredText(key: string): [string, (text: string) => void] {
  const [text, setText] = useState(() => localStorage.getItem(key) ?? "");
  useAcrossTabs(key, text);
  const change = (next: string) => {
    setText(next);
    // Emptying the field removes only the text that it showed, not a newer text of another tab.
    if (next || localStorage.getItem(key) === text) storeText(key, next);
  };
  return [text, change];
}
