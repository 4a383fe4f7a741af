// What the keys do on the divider between conversation and workspace. Pure.

import { clampShare, LARGEST, SMALLEST, type Layout } from "./layout";

/** What one press of an arrow key moves. */
export const STEP = 0.02;

/** What a key on the divider does; `null` for a key that is not its own. `towards` are the two arrow keys, back and on. */
export function moveByKey(layout: Layout, key: string, towards: readonly [string, string]): Layout | null {
  switch (key) {
    case towards[0]:
      return { ...layout, folded: null, share: clampShare(layout.share - STEP) };
    case towards[1]:
      return { ...layout, folded: null, share: clampShare(layout.share + STEP) };
    case "Home":
      return { ...layout, folded: null, share: SMALLEST };
    case "End":
      return { ...layout, folded: null, share: LARGEST };
    case "Enter":
      return { ...layout, folded: layout.folded === null ? "workspace" : null };
    default:
      return null;
  }
}
