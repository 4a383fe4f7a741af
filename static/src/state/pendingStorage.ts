// What the server has not taken yet, kept in this browser: what a person wrote outlives the page.

import { keep } from "../keep";
import type { Wish } from "../wire/frame";
import type { Sent } from "./session";

/** One key each: two pages on one session do not write over each other. */
const keyOf = (session: string, id = ""): string => `greenroom.unsent.${session}.${id}`;

/** What is still being written in a session: by this name its message, … */
export const draftKey = (session: string): string => `greenroom.draft.${session}`;
/** … the files of that message, … */
export const filesKey = (session: string): string => `${draftKey(session)}.files`;
/** … the command beside it, … */
export const commandKey = (session: string): string => `${draftKey(session)}.command`;
/** … and the change to a message that waits in the queue. */
export const changeKey = (session: string, item = ""): string => `${draftKey(session)}.change.${item}`;

/** What is on its way, in the order in which it was written. */
export function unsentOf(session: string): Sent[] {
  return keysFrom(keyOf(session))
    .flatMap((key) => {
      try {
        return [JSON.parse(localStorage.getItem(key) ?? "") as Sent & { at: number }];
      } catch {
        return [];
      }
    })
    .sort((a, b) => a.at - b.at)
    .map(({ at: _, ...sent }) => sent);
}

/** Keeps what has come to be on its way, or was refused, and forgets what was taken or dropped. */
export function keepUnsent(session: string, before: readonly Sent[], after: readonly Sent[]): void {
  const waiting = after.filter(isUnsent);
  for (const [n, sent] of waiting.entries()) {
    if (!before.includes(sent)) keep(keyOf(session, sent.id), JSON.stringify({ at: Date.now() + n, ...sent }));
  }
  for (const { id } of before.filter(isUnsent)) {
    if (!waiting.some((sent) => sent.id === id)) keep(keyOf(session, id), "");
  }
}

/** There is no session to send anything to any more. */
export function forgetUnsent(session: string): void {
  for (const key of [draftKey(session), ...keysFrom(`${draftKey(session)}.`), ...keysFrom(keyOf(session))]) keep(key, "");
}

/** What is kept under names that begin like this. */
export function keysFrom(start: string): string[] {
  return Object.keys(localStorage).filter((key) => key.startsWith(start));
}

function isUnsent({ wish, seq }: Sent): boolean {
  return seq === undefined && isTyped(wish);
}

/** Whether there are words of a person in it. What was only pressed is pressed again as easily, and may mean something else then. */
function isTyped(wish: Wish): boolean {
  switch (wish.action) {
    case "message":
    case "run":
      return true;
    case "edit_queue":
      return wish.args.content !== undefined;
    case "confirm":
      return wish.args.reason !== undefined;
    default:
      return false;
  }
}
