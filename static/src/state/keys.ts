// Shortcuts that work everywhere, and what they open.

import { signal } from "@preact/signals";
import { focusField } from "../focus";
import { navigate } from "../route";
import { toggleWorkspace } from "./current";

/** What lies over the page. */
export const overlay = signal<"palette" | "shortcuts" | null>(null);

const KEY = "greenroom.single-keys";

/** Whether single letters act. They can be turned off: speech input and some keyboards type them by accident. */
export const singleKeys = signal(localStorage.getItem(KEY) !== "off");

export function setSingleKeys(on: boolean): void {
  singleKeys.value = on;
  localStorage.setItem(KEY, on ? "on" : "off");
}

const isMac = /Mac|iP(?:hone|ad)/.test(navigator.userAgent);
export const MOD = isMac ? "⌘" : "Ctrl";

const SINGLE: Record<string, () => void> = {
  "?": () => (overlay.value = "shortcuts"),
  n: () => navigate("/sessions"),
  w: toggleWorkspace,
  "/": focusField,
};

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing) return;
  if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    overlay.value = overlay.value === "palette" ? null : "palette";
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || !singleKeys.peek() || isWriting(event.target)) return;
  const act = Object.hasOwn(SINGLE, event.key) ? SINGLE[event.key] : undefined;
  if (!act || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  act();
});

function isWriting(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"));
}
