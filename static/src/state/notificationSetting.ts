// Setting for notifications, stored in this browser.

import { signal } from "@preact/signals";

const KEY = "greenroom.notify";

/** Support for notifications. Pages over plain HTTP from another machine have none. */
export const canNotify = "Notification" in globalThis && isSecureContext;

/** True if the user turned notifications on. */
export const notificationsOn = signal(canNotify && localStorage.getItem(KEY) === "on" && Notification.permission === "granted");

export async function toggleNotifications(): Promise<void> {
  if (!canNotify) return;
  const on = !notificationsOn.peek() && (await Notification.requestPermission()) === "granted";
  localStorage.setItem(KEY, on ? "on" : "off");
  notificationsOn.value = on;
}
