// Components that most visits do not need, loaded when they are first shown.

import type { ComponentType, FunctionComponent, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";

/** A component whose code is on its way once it is shown and the page is drawn, or once `load` is called. */
export type LazyComponent<P> = FunctionComponent<P> & { load: () => Promise<unknown> };

/** A component whose code `fetch` brings. Until it is there, `meanwhile` stands in its place. */
export function lazy<P extends object>(fetch: () => Promise<ComponentType<P>>, meanwhile: VNode | null = null): LazyComponent<P> {
  let loaded: ComponentType<P> | null = null;
  let coming: Promise<ComponentType<P>> | null = null;
  const load = () =>
    (coming ??= fetch()
      .then((component) => (loaded = component))
      .catch((error: unknown) => {
        // The next one who asks tries again.
        coming = null;
        throw error;
      }));

  const Lazy: LazyComponent<P> = (props) => {
    const [Shown, setShown] = useState<ComponentType<P> | null>(() => loaded);
    useEffect(() => {
      if (!Shown) void load().then((component) => setShown(() => component));
    }, []);
    return Shown ? <Shown {...props} /> : meanwhile;
  };
  Lazy.load = load;
  return Lazy;
}

/** Stands where a whole page is on its way. */
export const pageSkeleton = <div class="skeleton tall" role="status" aria-label="Loading" />;
