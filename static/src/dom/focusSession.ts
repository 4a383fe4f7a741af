// Focus of a session in the list.

import { serverAddress } from "../basePath";

/** Focuses the list entry of a session, once it is drawn. Does nothing if it is not listed. */
export function focusSession(id: string): void {
  const address = CSS.escape(serverAddress(`/sessions/${id}`));
  requestAnimationFrame(() => document.querySelector<HTMLElement>(`.session-list a[href="${address}"]`)?.focus());
}
