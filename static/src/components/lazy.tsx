// Components of the lazy bundle.

import type { ComponentType, FunctionComponent, VNode } from "preact";
import { useEffect } from "preact/hooks";
import { lazyBundle, loadLazy, type LazyBundle } from "../loadLazy";

/**
 * Returns a component of the lazy bundle. Once loaded, it renders at once, so a palette opened by a
 * key receives typed text. Before, it shows `meanwhile` and starts loading after the page is drawn.
 */
export function lazy<P extends object>(pick: (later: LazyBundle) => ComponentType<P>, meanwhile: VNode | null = null): FunctionComponent<P> {
  return function Lazy(props: P) {
    const loaded = lazyBundle.value;
    useEffect(() => void loadLazy(), []);
    if (!loaded) return meanwhile;
    const Shown = pick(loaded);
    return <Shown {...props} />;
  };
}

/** Placeholder of a whole page. */
export const pageSkeleton = <div class="skeleton tall" role="status" aria-label="Loading" />;
