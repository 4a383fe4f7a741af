// Focus of a new approval request. It never interrupts typing.

import type { RefObject } from "preact";
import { useLayoutEffect } from "preact/hooks";

/** Moves the focus to the element when it appears, unless the user is busy elsewhere. */
export function useCalmFocus(element: RefObject<HTMLElement>): void {
  useLayoutEffect(() => {
    // The element itself takes no key. A button with the focus would be pressed by a stray Enter.
    if (isIdle(document.activeElement)) element.current?.focus({ preventScroll: true });
  }, []);
}

/** Reports if the focus is nowhere, or in an empty message field. */
function isIdle(active: Element | null): boolean {
  if (document.querySelector("dialog[open]")) return false;
  if (active === null || active === document.body) return true;
  return active instanceof HTMLElement && active.matches(".composer textarea:placeholder-shown");
}
