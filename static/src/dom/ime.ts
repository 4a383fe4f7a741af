// Input methods, which compose a text of several keys: those are not meant for the page.

/** How one says that a key belongs to it, where `isComposing` is already false (Safari). */
const IME_KEY = 229;

export const isComposing = (event: KeyboardEvent): boolean => event.isComposing || event.keyCode === IME_KEY;
