// The newest events of a session: what is on the screen first.

import type { Event } from "./event";
import { newestEvents } from "./rest";

/** How many: somewhat more than a screen holds. The server names the same number to the browser: `NEWEST` in `assets.rs`. */
const TAIL = 60;

/** The page is drawn without them when they take longer, in milliseconds. */
const PATIENCE_MS = 100;

let expected: { id: string; events: Promise<Event[]>; come: Event[] | null } | null = null;

/**
 * Asks for them, as the browser may have done already: the page's own headers name them. Done when they are here, or will not be
 * soon.
 */
export async function expectNewest(id: string): Promise<void> {
  const asked = { id, events: newestEvents(id, TAIL), come: null as Event[] | null };
  expected = asked;
  // Whoever takes it hears of it.
  const come = asked.events.then((events) => void (asked.come = events)).catch(() => {});
  await Promise.race([come, new Promise((resolve) => setTimeout(resolve, PATIENCE_MS))]);
}

/** At once, where they were expected and have come: then the page is drawn with them in one go. */
export function takeNewest(id: string): Event[] | Promise<Event[]> {
  const early = expected?.id === id ? (expected.come ?? expected.events) : newestEvents(id, TAIL);
  expected = null;
  return early;
}
