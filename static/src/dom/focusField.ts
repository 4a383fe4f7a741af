// Focus moves to the text field after an action.

/** Detects a touch screen. Focus there opens a keyboard that covers half of the screen. */
export const isTouchScreen = (): boolean => matchMedia("(pointer: coarse)").matches;

/**
 * Focuses the message or task field. Inside the workspace, focuses the command field if it is
 * shown.
 */
export function focusField(from?: Element): void {
  if (isTouchScreen()) return;
  const command = from?.closest(".workspace")?.querySelector<HTMLElement>(".command-field");
  (command ?? document.querySelector<HTMLElement>(".composer textarea, .home textarea"))?.focus();
}
