// Unfolding of the conversation when the user is needed there.

import { currentSession } from "./currentSession";
import { isNarrow } from "./narrowScreen";

/** Shows the conversation: unfolds it, or on a narrow screen closes the sheet above it. */
export function unfoldConversation(): void {
  const layout = currentSession.peek()?.layout;
  if (layout && isNarrow.peek() && layout.peek().folded !== "workspace") layout.value = { ...layout.peek(), folded: "workspace" };
  if (layout?.peek().folded === "chat") layout.value = { ...layout.peek(), folded: null };
}
