// Unread marks of this browser: sessions that did something since they were last looked at.

import { signal } from "@preact/signals";
import type { Session } from "../wire/frame";
import { isOnScreen } from "./currentSession";
import { seenKey } from "./pendingStorage";

/** Key of the creation time of the newest session in this browser's first list. */
export const FIRST_LIST = "greenroom.seen";

/** Number of changes of the marks, here or in another tab. */
export const markChanges = signal(0);

addEventListener("storage", ({ key }) => {
  // A cleared storage has no key.
  if (key === null || key.startsWith(FIRST_LIST)) markChanges.value += 1;
});

/**
 * Reports if a session did something that this browser has not shown. A session that never was on
 * the screen counts if it is newer than the first list.
 */
export function isUnread({ id, latest_seq, created_at }: Session): boolean {
  void markChanges.value;
  if (typeof latest_seq !== "number" || isOnScreen(id)) return false;
  const seen = localStorage.getItem(seenKey(id));
  if (seen !== null) return latest_seq > Number(seen);
  const first = localStorage.getItem(FIRST_LIST);
  return first !== null && created_at > first;
}
