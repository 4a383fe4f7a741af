// Control and direction characters in the text of a file, made visible.

const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Replaces characters that could hide or reorder code. Keeps tabs and a return at the end. */
export function revealControl(text: string): string {
  return text.replace(/\r$/, "").replace(CONTROL, (char) => `\\u{${char.codePointAt(0)!.toString(16)}}`);
}
