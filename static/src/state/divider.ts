// Keyboard control of the divider between conversation and workspace. Pure.

import { clampShare, MAX_SHARE, MIN_SHARE, type PaneLayout } from "./layout";

/** Change of the share per arrow key. */
export const STEP = 0.02;

/**
 * Returns the layout after a key, or `null` for an unused key. `towards`: the two arrow keys, back
 * and forward.
 */
export function moveByKey(layout: PaneLayout, key: string, towards: readonly [string, string]): PaneLayout | null {
  switch (key) {
    case towards[0]:
      return { ...layout, folded: null, share: clampShare(layout.share - STEP) };
    case towards[1]:
      return { ...layout, folded: null, share: clampShare(layout.share + STEP) };
    case "Home":
      return { ...layout, folded: null, share: MIN_SHARE };
    case "End":
      return { ...layout, folded: null, share: MAX_SHARE };
    case "Enter":
      return { ...layout, folded: layout.folded === null ? "workspace" : null };
    default:
      return null;
  }
}
