// Where somebody goes on who has done what they came for.

/** Where a keyboard that comes up by itself would cover half of the screen. */
export const isTouched = (): boolean => matchMedia("(pointer: coarse)").matches;

/** Puts the focus into the field that messages or tasks are written in; within the workspace into the one for commands, if it shows it. */
export function focusField(from?: Element): void {
  if (isTouched()) return;
  const command = from?.closest(".workspace")?.querySelector<HTMLElement>(".command-field");
  (command ?? document.querySelector<HTMLElement>(".composer textarea, .home textarea"))?.focus();
}
