// Components that most visits do not need, in a file that comes later.

import type { ComponentType, FunctionComponent, VNode } from "preact";
import { useEffect } from "preact/hooks";
import { later, loadLater, type Later } from "../ondemand";

/**
 * A component of that file. Once the file is there, it is drawn at once: who opens a palette by a key types on. Before, its code
 * is on its way as soon as it is shown and the page is drawn, and `meanwhile` stands in its place.
 */
export function lazy<P extends object>(pick: (later: Later) => ComponentType<P>, meanwhile: VNode | null = null): FunctionComponent<P> {
  return function Lazy(props: P) {
    const loaded = later.value;
    useEffect(() => void loadLater(), []);
    if (!loaded) return meanwhile;
    const Shown = pick(loaded);
    return <Shown {...props} />;
  };
}

/** Stands where a whole page is on its way. */
export const pageSkeleton = <div class="skeleton tall" role="status" aria-label="Loading" />;
