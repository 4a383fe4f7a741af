// Clocks. Ticks once a second while a component reads one of them.

import { signal } from "@preact/signals";

let timer = 0;

/** Time of day in the browser. */
export const now = signal(Date.now(), {
  watched() {
    timer = window.setInterval(() => (now.value = Date.now()), 1000);
  },
  unwatched() {
    clearInterval(timer);
  },
});

/** Server's clock minus the browser's, in milliseconds. `null` until the server states its time. */
const offset = signal<number | null>(null);

/**
 * Takes over the server's time, RFC 3339 or an HTTP date. A `rough` time has whole seconds and
 * serves only until an exact one arrives.
 */
export function syncClock(at: string | null | undefined, precision: "exact" | "rough" = "exact"): void {
  const ms = Date.parse(at ?? "");
  if (Number.isNaN(ms) || (precision === "rough" && offset.peek() !== null)) return;
  offset.value = ms - Date.now();
}

/**
 * Returns the time on the server's clock, with which all events are stamped. `null` until the
 * server states its time. A component that calls this is drawn again every second.
 */
export function serverNow(): number | null {
  void now.value;
  return offset.value === null ? null : Date.now() + offset.value;
}
