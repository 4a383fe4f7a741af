// Copying to the clipboard.

/** Copies a text. Browsers offer the clipboard only to secure pages, so others copy a selection. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  const focused = document.activeElement;
  // An open dialog makes the rest of the page inert.
  (focused?.closest("dialog") ?? document.body).append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  if (focused instanceof HTMLElement) focused.focus({ preventScroll: true });
}
