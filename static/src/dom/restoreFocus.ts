// Where the focus goes when what has it is taken away: a button that was pressed, the workspace that was closed.

import { focusField } from "./focus";

let held: EventTarget | null = null;
let inWorkspace: Element | null = null;
/** Rows that are scrolled away are taken away: the keys that scroll go on where they were. */
let inList: HTMLElement | null = null;

// A press beside all that can have the focus leaves it nowhere, and that was meant.
addEventListener("pointerdown", () => (held = null), true);
addEventListener("focusin", ({ target }) => {
  held = target;
  inWorkspace = (target as Element).closest(".workspace");
  inList = (target as Element).closest<HTMLElement>(".long-list");
});

new MutationObserver(() => {
  if (!(held instanceof Element) || held.isConnected) return;
  held = null;
  if (document.activeElement !== document.body) return;
  if (inList?.isConnected) return inList.focus({ preventScroll: true });
  // Whoever was about to press a button that went away must not send what they had begun to write.
  if (!isDraft()) focusField(inWorkspace?.isConnected ? inWorkspace : undefined);
}).observe(document.body, { childList: true, subtree: true });

function isDraft(): boolean {
  const text = document.querySelector<HTMLTextAreaElement>(".composer textarea, .home textarea")?.value;
  return Boolean(text) || document.querySelector(".composer .attachments, .home .attachments") !== null;
}
