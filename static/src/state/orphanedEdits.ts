// Unsaved edits of queued messages that left the queue while the session was closed. Shown as
// rejected messages.

import { computed, effect } from "@preact/signals";
import { storeText } from "../storage";
import { currentLive } from "./currentSession";
import { queueEditKey, keysWithPrefix } from "./pendingStorage";

/** Session on the screen, once its queue is complete. */
const completeSession = computed(() => {
  const live = currentLive.value;
  return live?.isComplete ? live : null;
});

effect(() => {
  const live = completeSession.value;
  if (!live) return;
  const { queue } = live.state.peek();
  const start = queueEditKey(live.id);
  for (const key of keysWithPrefix(start)) {
    const item = key.slice(start.length);
    if (queue.some((queued) => queued.item === item)) continue;
    live.rejectOrphanedEdit(item, localStorage.getItem(key)?.trim() ?? "");
    storeText(key, "");
  }
});
