// Whether the person wants to be notified, kept in this browser.

import { signal } from "@preact/signals";

const KEY = "greenroom.notify";

/** Whether this browser has notifications at all (pages over plain HTTP from another machine have none). */
export const canNotify = "Notification" in globalThis && isSecureContext;

/** Whether the person wants them. */
export const notifying = signal(canNotify && localStorage.getItem(KEY) === "on" && Notification.permission === "granted");

export async function toggleNotifying(): Promise<void> {
  if (!canNotify) return;
  const on = !notifying.peek() && (await Notification.requestPermission()) === "granted";
  localStorage.setItem(KEY, on ? "on" : "off");
  notifying.value = on;
}
