// The newest events of a session: what is on the screen first.

import type { Event } from "./event";
import { newestEvents } from "./rest";

/** How many: somewhat more than a screen holds. */
const TAIL = 60;

let expected: { id: string; events: Promise<Event[]> } | null = null;

/** Asks for them before the code is there that shows them. */
export function expectNewest(id: string): void {
  expected = { id, events: newestEvents(id, TAIL) };
  // Whoever takes it hears of it.
  expected.events.catch(() => {});
}

export function takeNewest(id: string): Promise<Event[]> {
  const early = expected?.id === id ? expected.events : newestEvents(id, TAIL);
  expected = null;
  return early;
}
