// Ways between the conversation and the Changes tab.

import { focusSoon } from "../dom/focusSoon";
import { storeText } from "../storage";
import { currentSession } from "../state/currentSession";
import { isNarrow } from "../state/narrowScreen";
import { draftKey } from "../state/pendingStorage";
import { changesOf } from "./changesState";

/** Opens the tab with the changes of a turn. */
export function openChanges(checkpoint: string): void {
  const current = currentSession.peek();
  if (!current) return;
  changesOf(current.live.id).choose(`at:${checkpoint}`);
  const { layout } = current;
  layout.value = { ...layout.peek(), folded: null, tab: "changes" };
}

/** Adds a text to the draft of the next message, and goes there. */
export function addToDraft(session: string, text: string): void {
  const layout = currentSession.peek()?.layout;
  if (layout) layout.value = { ...layout.peek(), folded: isNarrow.peek() ? "workspace" : null };
  const field = document.querySelector<HTMLTextAreaElement>(".composer textarea");
  const draft = field?.value ?? localStorage.getItem(draftKey(session)) ?? "";
  const joined = draft.trim() ? `${draft.trimEnd()}\n\n${text}` : text;
  if (!field) return storeText(draftKey(session), joined);
  field.value = joined;
  // The field's own handler keeps the draft.
  field.dispatchEvent(new Event("input", { bubbles: true }));
  // A closing sheet gives the focus back first.
  focusSoon(field);
}
