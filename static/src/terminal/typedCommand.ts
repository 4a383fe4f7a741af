// Command that is typed into a terminal for a person, who confirms it with Enter.

import { signal } from "@preact/signals";
import { stripEscapes } from "../escapes";
import { currentSession } from "../state/currentSession";

/** Command that waits for a terminal. */
export const typedCommand = signal<{ session: string; text: string } | null>(null);

/** Opens the Terminal tab, which types the command without Enter. */
export function typeIntoTerminal(session: string, command: string): void {
  typedCommand.value = { session, text: typable(command) };
  const layout = currentSession.peek()?.layout;
  if (layout) layout.value = { ...layout.value, tab: "terminal", folded: layout.value.folded === "workspace" ? null : layout.value.folded };
}

/** Returns a command without characters that a terminal would act on. */
export function typable(command: string): string {
  return stripEscapes(command.trim()).replace(/\r\n?/g, "\n").replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, "").replace(/\t/g, " ");
}
