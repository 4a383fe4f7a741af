// A change that was begun to a message in the queue, where that has left it while nobody looked: it is shown as one that was not sent.

import { computed, effect } from "@preact/signals";
import { keep } from "../keep";
import { openLive } from "./current";
import { changeKey, keysFrom } from "./unsent";

/** The session on the screen, as soon as its queue is known. */
const whole = computed(() => {
  const live = openLive.value;
  return live?.isWhole ? live : null;
});

effect(() => {
  const live = whole.value;
  if (!live) return;
  const { queue } = live.state.peek();
  const start = changeKey(live.id);
  for (const key of keysFrom(start)) {
    const item = key.slice(start.length);
    if (queue.some((queued) => queued.item === item)) continue;
    live.missedInQueue(item, localStorage.getItem(key)?.trim() ?? "");
    keep(key, "");
  }
});
