// Focus recovery after the focused element is removed, for example a pressed button or the closed
// workspace.

import { focusField } from "./focusField";

let focused: EventTarget | null = null;
let inWorkspace: Element | null = null;
/**
 * Long list of the focused row. The list takes over the focus of a removed row, so scroll keys
 * continue.
 */
let inList: HTMLElement | null = null;

// A press beside focusable elements clears the focus on purpose.
addEventListener("pointerdown", () => (focused = null), true);
addEventListener("focusin", ({ target }) => {
  focused = target;
  inWorkspace = (target as Element).closest(".workspace");
  inList = (target as Element).closest<HTMLElement>(".long-list");
});

new MutationObserver(() => {
  if (!(focused instanceof Element) || focused.isConnected) return;
  focused = null;
  if (document.activeElement !== document.body) return;
  if (inList?.isConnected) return inList.focus({ preventScroll: true });
  // The field keeps no focus while it holds a draft. Enter meant for a removed button must not send
  // the draft.
  if (!isDraft()) focusField(inWorkspace?.isConnected ? inWorkspace : undefined);
}).observe(document.body, { childList: true, subtree: true });

function isDraft(): boolean {
  const text = document.querySelector<HTMLTextAreaElement>(".composer textarea, .home textarea")?.value;
  return Boolean(text) || document.querySelector(".composer .attachments, .home .attachments") !== null;
}
