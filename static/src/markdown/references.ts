// Character references (`&amp;`, `&hellip;`), which stand for a character everywhere in markdown but in code.

const REFERENCE = /&(?:#\d{1,7}|#x[\da-f]{1,6}|\w{1,32});/gi;

/** What is kept at most of what the browser said: there are half as many names. */
const KEPT = 4096;
const known = new Map<string, string>();

/** The text with its references as the characters that they stand for. */
export function decoded(text: string): string {
  return text.includes("&") ? text.replace(REFERENCE, characterOf) : text;
}

function characterOf(reference: string): string {
  const before = known.get(reference);
  if (before !== undefined) return before;
  if (known.size >= KEPT) known.clear();
  const character = read(reference);
  known.set(reference, character);
  return character;
}

/** The browser knows all names. In a `textarea` it reads text alone, and no elements. */
function read(reference: string): string {
  const reader = document.createElement("textarea");
  reader.innerHTML = reference;
  const text = reader.textContent ?? "";
  // From the times before the semicolon was asked for, it also reads the beginning of a name: `&notify;` is none.
  return text.length > 1 && text.endsWith(";") ? reference : text;
}
