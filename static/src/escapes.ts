// Escape sequences in what programs print: taken out, because they may ask a terminal for anything.

/** A sequence that sets colours. */
const COLOUR = /\x1b\[[\d;:]*m/y;
/**
 * Any other: strings up to their end (titles, clipboards, links), then control sequences, then short ones, then lone controls.
 * A string ends at the latest where the next sequence begins, so that no character is looked at again and again.
 */
const OTHER =
  /(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|(?=\x1b)|$)|(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|$)|\x1b[ -/]*(?:[0-~]|$)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/y;
const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;

/** The text without any sequence; with `colours`, those that set colours stay. */
export function withoutEscapes(text: string, colours = false): string {
  let kept = "";
  for (let at = 0; at < text.length; ) {
    COLOUR.lastIndex = OTHER.lastIndex = CONTROL.lastIndex = at;
    const colour = colours ? COLOUR.exec(text)?.[0] : undefined;
    const passed = colour ?? OTHER.exec(text)?.[0];
    kept += colour ?? "";
    if (passed !== undefined) {
      at += passed.length;
      continue;
    }
    const next = CONTROL.exec(text)?.index ?? text.length;
    kept += text.slice(at, next);
    at = next;
  }
  return kept;
}

/** Lines as they stand in the end: a lone carriage return begins its line anew. */
export function settledLines(text: string): string {
  const lines = text.split("\n");
  return lines.map((line, n) => settled(line, n === lines.length - 1)).join("\n");
}

/** Carriage returns at the end are a part of the line break, or of one that has yet to come. */
function settled(line: string, isLast: boolean): string {
  let end = line.length;
  while (line[end - 1] === "\r") end -= 1;
  const from = line.slice(0, end).lastIndexOf("\r") + 1;
  return line.slice(from, isLast ? line.length : end);
}

/**
 * What takes no room, or looks like a blank and is none: controls, what Unicode says to leave unseen, what turns or breaks the
 * text around it, an empty Braille cell. A selector in a pictogram or a keycap is seen by what it makes of that.
 */
const UNSEEN =
  /(?!(?<=\p{Extended_Pictographic})[\ufe0e\ufe0f]|\ufe0f\u20e3)[\x00-\x08\x0b-\x1f\x7f-\x9f\p{Default_Ignorable_Code_Point}\p{Cf}\p{Zl}\p{Zp}\u2800]/gu;

/** The text with every character in sight: what a person is asked to allow must not look like something else. */
export function inSight(text: string): string {
  return text.replace(UNSEEN, (char) => `\\u{${char.codePointAt(0)?.toString(16)}}`);
}

/** What a terminal without colours would show of an output in the end. */
export function plainOutput(text: string): string {
  return settledLines(withoutEscapes(text));
}
