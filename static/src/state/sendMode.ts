// Effect of Enter while the agent works, stored in this browser. Ctrl+Enter has the other effect.

import { signal } from "@preact/signals";
import { storeText } from "../storage";
import type { MessageMode } from "../wire/event";

/** Modes of a message that leave the running turn alone. */
export type SendMode = Extract<MessageMode, "queue" | "steer">;

const KEY = "greenroom.send-mode";

/** Mode of a message sent with Enter while the agent works. */
export const sendMode = signal<SendMode>(parseMode(localStorage.getItem(KEY)));

export function setSendMode(mode: SendMode): void {
  sendMode.value = mode;
  // The default needs no entry.
  storeText(KEY, mode === "steer" ? mode : "");
}

/** Returns the mode that Ctrl+Enter sends. */
export const otherMode = (mode: SendMode): SendMode => (mode === "queue" ? "steer" : "queue");

function parseMode(stored: string | null): SendMode {
  return stored === "steer" ? "steer" : "queue";
}

// Another tab changed the setting.
addEventListener("storage", ({ key, newValue }) => {
  if (key === KEY) sendMode.value = parseMode(newValue);
});
