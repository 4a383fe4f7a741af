// The time of day as a signal that ticks once a second, while anybody looks at it.

import { signal } from "@preact/signals";

let timer = 0;

export const now = signal(Date.now(), {
  watched() {
    timer = window.setInterval(() => (now.value = Date.now()), 1000);
  },
  unwatched() {
    clearInterval(timer);
  },
});
