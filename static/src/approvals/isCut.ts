// Detection of a box that does not show all of its content.

import type { RefObject } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";

/** Reports if the content is higher than its box. `content`: a value that changes with it. */
export function useIsCut(box: RefObject<HTMLElement>, content?: unknown): boolean {
  const [isCut, setIsCut] = useState(false);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setIsCut(element.scrollHeight > element.clientHeight);
    const resized = new ResizeObserver(measure);
    resized.observe(element);
    if (element.firstElementChild) resized.observe(element.firstElementChild);
    measure();
    return () => resized.disconnect();
  }, [content]);
  return isCut;
}
