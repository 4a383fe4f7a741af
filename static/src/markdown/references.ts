// Character references (`&amp;`, `&hellip;`), valid everywhere in markdown except in code.

const REFERENCE = /&(?:#\d{1,7}|#x[\da-f]{1,6}|\w{1,32});/gi;

/** Bound: 4,096 references, twice the number of names. When full: the cache is cleared. */
const MAX_CACHED = 4096;
const known = new Map<string, string>();

/** Replaces references by their characters. */
export function decodeReferences(text: string): string {
  return text.includes("&") ? text.replace(REFERENCE, characterOf) : text;
}

function characterOf(reference: string): string {
  const before = known.get(reference);
  if (before !== undefined) return before;
  if (known.size >= MAX_CACHED) known.clear();
  const character = read(reference);
  known.set(reference, character);
  return character;
}

/** Resolves a reference through the browser. A `textarea` parses only text, no elements. */
function read(reference: string): string {
  const reader = document.createElement("textarea");
  reader.innerHTML = reference;
  const text = reader.textContent ?? "";
  // Browsers also resolve legacy names without a semicolon. `&notify;` is not `¬ify;`.
  return text.length > 1 && text.endsWith(";") ? reference : text;
}
