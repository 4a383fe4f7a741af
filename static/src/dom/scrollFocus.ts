// Keyboard focus for scrolling boxes. A box becomes a tab stop once its content overflows.

import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";

/**
 * Returns a ref for a box that may scroll. `content` is a value that changes with the content if
 * its size does not.
 */
export function useScrollFocus<E extends HTMLElement>(label: string, content?: unknown): RefObject<E> {
  const box = useRef<E>(null);

  useEffect(() => {
    const element = box.current;
    if (!element || element.tabIndex === 0) return;
    const watched = new ResizeObserver(() => {
      if (element.scrollWidth <= element.clientWidth && element.scrollHeight <= element.clientHeight) return;
      // The tab stop stays. Removing the attribute would drop the focus when the window grows.
      element.tabIndex = 0;
      element.setAttribute("role", "group");
      element.setAttribute("aria-label", label);
      watched.disconnect();
    });
    watched.observe(element);
    return () => watched.disconnect();
  }, [label, content]);

  return box;
}
