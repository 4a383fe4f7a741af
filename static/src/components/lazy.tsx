// Components that most visits do not need, in a file that comes later.

import type { ComponentType, FunctionComponent, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";

type Later = typeof import("../later");

let later: Later | null = null;
let coming: Promise<Later> | null = null;

const AGAIN_MS = 1000;

/** What is not there at first sight. Comes as soon as the server can be reached. */
export const loadLater = (): Promise<Later> => (coming ??= untilItComes());

async function untilItComes(): Promise<Later> {
  for (;;) {
    try {
      return (later = await import("../later"));
    } catch {
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }
}

/**
 * A component of that file. Once the file is there, it is drawn at once: who opens a palette by a key types on. Before, its code
 * is on its way as soon as it is shown and the page is drawn, and `meanwhile` stands in its place.
 */
export function lazy<P extends object>(pick: (later: Later) => ComponentType<P>, meanwhile: VNode | null = null): FunctionComponent<P> {
  return function Lazy(props: P) {
    const [loaded, setLoaded] = useState(later);
    useEffect(() => {
      if (!loaded) void loadLater().then(setLoaded);
    }, []);
    if (!loaded) return meanwhile;
    const Shown = pick(loaded);
    return <Shown {...props} />;
  };
}

/** Stands where a whole page is on its way. */
export const pageSkeleton = <div class="skeleton tall" role="status" aria-label="Loading" />;
