// Unfolding of the conversation when the user is needed there.

import { currentSession } from "./currentSession";

export function unfoldConversation(): void {
  const layout = currentSession.peek()?.layout;
  if (layout?.peek().folded === "chat") layout.value = { ...layout.peek(), folded: null };
}
