// Mark around the row that an address points at.

import type { ComponentChildren } from "preact";

export function Revealed({ children }: { children: ComponentChildren }) {
  return (
    <div class="revealed" role="group" aria-label="Found message" tabIndex={-1}>
      {children}
    </div>
  );
}

/** Scrolls to the marked row and focuses it, so that a screen reader continues there. */
export function showRevealed(box: HTMLElement): void {
  const row = box.querySelector<HTMLElement>(".revealed");
  row?.scrollIntoView({ block: "center" });
  row?.focus({ preventScroll: true });
}
