// Global keyboard shortcuts and their overlays.

import { signal } from "@preact/signals";
import { isComposing } from "../dom/ime";
import { focusField } from "../dom/focusField";
import { navigate } from "../route";
import { toggleWorkspace } from "./currentSession";
import { toggleSidebar } from "./sidebar";

/** Overlay on top of the page. */
export const overlay = signal<"palette" | "settings" | "shortcuts" | null>(null);

const KEY = "greenroom.single-keys";

/**
 * Setting for single-key shortcuts. Speech input and some keyboards type single keys by accident.
 */
export const singleKeys = signal(localStorage.getItem(KEY) !== "off");

export function setSingleKeys(on: boolean): void {
  singleKeys.value = on;
  localStorage.setItem(KEY, on ? "on" : "off");
}

const isMac = /Mac|iP(?:hone|ad)/.test(navigator.userAgent);
export const MOD = isMac ? "⌘" : "Ctrl";

/** Shortcuts with Ctrl or ⌘, also active in text fields. */
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
  const act = handlerOf(event);
  if (act) {
    event.preventDefault();
    if (!event.repeat) act();
  } else if (isLetter(event) && singleKeys.peek() && isUnclaimed(event.target)) {
    // A typed letter goes to the field. The focus moves before the letter arrives.
    focusField(event.target instanceof Element ? event.target : undefined);
  }
});

function handlerOf(event: KeyboardEvent): (() => void) | undefined {
  if (event.ctrlKey || event.metaKey) {
    const handlers = event.shiftKey ? WITH_MOD_AND_SHIFT : WITH_MOD;
    const key = latinOf(event);
    const isOver = document.querySelector("dialog[open]") !== null;
    return Object.hasOwn(handlers, key) && (!isOver || key === "k") ? handlers[key] : undefined;
  }
  return Object.hasOwn(SINGLE, event.key) && singleKeys.peek() && isUnclaimed(event.target) ? SINGLE[event.key] : undefined;
}

/**
 * Returns the letter of a shortcut. On non-Latin keyboards, the letter at that place on a Latin
 * keyboard.
 */
function latinOf({ key, code }: KeyboardEvent): string {
  return (/^[\u0021-\u024f]$/.test(key) ? key : code.replace(/^Key/, "")).toLowerCase();
}

/** Detects the start of a word. A space scrolls or presses a button. */
function isLetter({ key, ctrlKey, metaKey }: KeyboardEvent): boolean {
  return !ctrlKey && !metaKey && /^[\p{L}\p{N}]$/u.test(key);
}

/** Reports if no element claims a key pressed at the target. */
function isUnclaimed(target: EventTarget | null): boolean {
  return !isTextEntry(target) && !(target instanceof Element && target.closest(".popover-panel, [role=listbox]")) && !document.querySelector("dialog[open]");
}

function isTextEntry(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"));
}
