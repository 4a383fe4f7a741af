// What the page of a session comes with, so that all of it is drawn at once.

import type { Event } from "./event";
import type { Session } from "./frame";
import { newestEvents } from "./rest";

interface Given {
  session: Session;
  /** The newest, oldest first. */
  events: Event[];
}

/** How many are asked for where none are given: somewhat more than a window holds. */
const TAIL = 60;

/** `null` on any other page, and where the server could not say it at once. */
export const given: Given | null = read();

function read(): Given | null {
  try {
    return JSON.parse(document.getElementById("given")?.textContent || "null") as Given | null;
  } catch {
    // The connection broke within the page.
    return null;
  }
}

let taken = false;

/** The newest events of a session: what is on the screen first. What was given is so once; later there are newer ones. */
export function takeNewest(id: string): Event[] | Promise<Event[]> {
  if (taken || given?.session.id !== id) return newestEvents(id, TAIL);
  taken = true;
  return given.events;
}
