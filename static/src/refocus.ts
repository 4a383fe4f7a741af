// Where the focus goes when what has it is taken away: a button that was pressed, the workspace that was closed.

import { focusField } from "./focus";

/** A keyboard that comes up by itself would cover half of such a screen. */
const isTouched = matchMedia("(pointer: coarse)");

let held: EventTarget | null = null;

// A press beside all that can have the focus leaves it nowhere, and that was meant.
addEventListener("pointerdown", () => (held = null), true);
addEventListener("focusin", ({ target }) => (held = target));

new MutationObserver(() => {
  if (!(held instanceof Element) || held.isConnected) return;
  held = null;
  if (document.activeElement === document.body && !isTouched.matches) focusField();
}).observe(document.body, { childList: true, subtree: true });
