// Shortcuts that work everywhere, and what they open.

import { signal } from "@preact/signals";
import { isComposing } from "../composing";
import { focusField } from "../focus";
import { navigate } from "../route";
import { toggleWorkspace } from "./current";
import { toggleSidebar } from "./sidebar";

/** What lies over the page. */
export const overlay = signal<"palette" | "shortcuts" | null>(null);

const KEY = "greenroom.single-keys";

/** Whether single keys act. They can be turned off: speech input and some keyboards type them by accident. */
export const singleKeys = signal(localStorage.getItem(KEY) !== "off");

export function setSingleKeys(on: boolean): void {
  singleKeys.value = on;
  localStorage.setItem(KEY, on ? "on" : "off");
}

const isMac = /Mac|iP(?:hone|ad)/.test(navigator.userAgent);
export const MOD = isMac ? "⌘" : "Ctrl";

/** With Ctrl or ⌘, also while something is being written. */
const WITH_MOD: Record<string, () => void> = {
  k: () => (overlay.value = overlay.value === "palette" ? null : "palette"),
  j: toggleWorkspace,
  b: toggleSidebar,
};
const WITH_MOD_AND_SHIFT: Record<string, () => void> = {
  o: () => navigate("/sessions"),
};
const SINGLE: Record<string, () => void> = {
  "?": () => (overlay.value = "shortcuts"),
  "/": () => focusField(),
};

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || isComposing(event) || event.altKey) return;
  const act = actOf(event);
  if (act) {
    event.preventDefault();
    if (!event.repeat) act();
  } else if (isLetter(event) && singleKeys.peek() && isIdle(event.target)) {
    // Who begins to type means the field: the letter itself arrives there.
    focusField(event.target instanceof Element ? event.target : undefined);
  }
});

function actOf(event: KeyboardEvent): (() => void) | undefined {
  if (event.ctrlKey || event.metaKey) {
    const acts = event.shiftKey ? WITH_MOD_AND_SHIFT : WITH_MOD;
    const key = latinOf(event);
    const isOver = document.querySelector("dialog[open]") !== null;
    return Object.hasOwn(acts, key) && (!isOver || key === "k") ? acts[key] : undefined;
  }
  return Object.hasOwn(SINGLE, event.key) && singleKeys.peek() && isIdle(event.target) ? SINGLE[event.key] : undefined;
}

/** The letter of a shortcut; where the keyboard writes another script, the one that stands there on a Latin keyboard. */
function latinOf({ key, code }: KeyboardEvent): string {
  return (/^[\u0021-\u024f]$/.test(key) ? key : code.replace(/^Key/, "")).toLowerCase();
}

/** Something that words begin with; a space scrolls, or presses a button. */
function isLetter({ key, ctrlKey, metaKey }: KeyboardEvent): boolean {
  return !ctrlKey && !metaKey && /^[\p{L}\p{N}]$/u.test(key);
}

/** Whether a key that is pressed there is meant for nothing else. */
function isIdle(target: EventTarget | null): boolean {
  return !isWriting(target) && !(target instanceof Element && target.closest(".popover-panel, [role=listbox]")) && !document.querySelector("dialog[open]");
}

function isWriting(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"));
}
