// Focus of a session in the list.

/** Focuses the list entry of a session, once it is drawn. Does nothing if it is not listed. */
export function focusSession(id: string): void {
  requestAnimationFrame(() => document.querySelector<HTMLElement>(`.session-list a[href="/sessions/${CSS.escape(id)}"]`)?.focus());
}
