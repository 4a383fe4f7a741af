// The conversation comes back for a person who is needed there.

import { current } from "./current";

export function unfoldConversation(): void {
  const layout = current.peek()?.layout;
  if (layout?.peek().folded === "chat") layout.value = { ...layout.peek(), folded: null };
}
