// Detection of input methods (IME), which compose text from several keys. The page ignores those
// keys.

/** Key code of a composing key. Safari reports `isComposing` as false for the last one. */
const IME_KEY = 229;

export const isComposing = (event: KeyboardEvent): boolean => event.isComposing || event.keyCode === IME_KEY;
