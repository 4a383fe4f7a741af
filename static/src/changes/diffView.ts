// Way to show diffs, for all sessions of this browser.

import { signal } from "@preact/signals";
import { storeText } from "../storage";

const KEY = "greenroom.diff-side-by-side";

export const isSideBySide = signal(localStorage.getItem(KEY) === "on");

export function toggleSideBySide(): void {
  isSideBySide.value = !isSideBySide.peek();
  storeText(KEY, isSideBySide.peek() ? "on" : "");
}
