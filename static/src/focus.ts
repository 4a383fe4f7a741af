// Where somebody goes on who has done what they came for.

/** Puts the focus into the field that messages or tasks are written in. */
export function focusField(): void {
  document.querySelector<HTMLElement>(".composer textarea, .home textarea")?.focus();
}
