// Boxes that scroll are reached by keyboard once there is more in them than they show. What shows all that it has is no stop on
// the way.

import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";

/** For a box that may scroll. `content` is what changes what is in it, if not its size. */
export function useReach<E extends HTMLElement>(label: string, content?: unknown): RefObject<E> {
  const box = useRef<E>(null);

  useEffect(() => {
    const element = box.current;
    if (!element || element.tabIndex === 0) return;
    const watched = new ResizeObserver(() => {
      if (element.scrollWidth <= element.clientWidth && element.scrollHeight <= element.clientHeight) return;
      // It stays one: whoever stands on it must not fall off when the window grows.
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
