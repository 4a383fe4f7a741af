// Time of day as a signal. Ticks once a second while a component reads it.

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
