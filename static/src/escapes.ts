// Terminal escape sequences in program output. All but colours are removed, because a sequence can
// control a terminal.

/** Colour sequence (SGR). */
const COLOUR = /\x1b\[[\d;:]*m/y;
/**
 * Any other sequence: strings to their end (titles, clipboards, links), control sequences, short
 * ones, lone controls. A string ends at the next sequence or at the end of its line at the latest.
 * An unterminated one hides no further line. This bound also avoids quadratic scanning.
 */
const OTHER =
  /(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c|(?=[\x1b\n])|$)|(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|$)|\x1b[ -/]*(?:[0-~]|$)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/y;
const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;

/** Removes escape sequences. With `colours`, colour sequences stay. */
export function stripEscapes(text: string, colours = false): string {
  let result = "";
  for (let at = 0; at < text.length; ) {
    COLOUR.lastIndex = OTHER.lastIndex = CONTROL.lastIndex = at;
    const colour = colours ? COLOUR.exec(text)?.[0] : undefined;
    const passed = colour ?? OTHER.exec(text)?.[0];
    result += colour ?? "";
    if (passed !== undefined) {
      at += passed.length;
      continue;
    }
    const next = CONTROL.exec(text)?.index ?? text.length;
    result += text.slice(at, next);
    at = next;
  }
  return result;
}

/** Applies carriage returns: a lone one restarts its line. */
export function applyCarriageReturns(text: string): string {
  const lines = text.split("\n");
  return lines.map((line, n) => lastOverwrite(line, n === lines.length - 1)).join("\n");
}

/**
 * Returns the last overwrite of a line. Trailing carriage returns belong to the line break, or to
 * one still to come.
 */
function lastOverwrite(line: string, isLast: boolean): string {
  let end = line.length;
  while (line[end - 1] === "\r") end -= 1;
  const from = line.slice(0, end).lastIndexOf("\r") + 1;
  return line.slice(from, isLast ? line.length : end);
}

/**
 * Characters that take no room or look like a blank. Controls, default-ignorable characters,
 * bidirectional and line breaks, an empty Braille cell. A selector stays inside a pictogram or a
 * keycap, where its effect is visible.
 */
export const INVISIBLE =
  /(?!(?<=\p{Extended_Pictographic})[\ufe0e\ufe0f]|\ufe0f\u20e3)[\x00-\x08\x0b-\x1f\x7f-\x9f\p{Default_Ignorable_Code_Point}\p{Cf}\p{Zl}\p{Zp}\u2800]/gu;

/** Makes every character visible. A text to approve must not look like another text. */
export function escapeInvisible(text: string): string {
  return text.replace(INVISIBLE, (char) => `\\u{${char.codePointAt(0)?.toString(16)}}`);
}

/**
 * Controls, also those of text direction and of line breaks. They could hide code or reorder it on
 * the screen.
 */
const CODE_CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** Makes the control characters of a line of code visible. A text to approve needs more. */
export function revealControls(line: string): string {
  return line.replace(CODE_CONTROLS, (char) => `\\u{${char.charCodeAt(0).toString(16)}}`);
}

/** Returns the final output as a terminal without colours shows it. */
export function plainOutput(text: string): string {
  return applyCarriageReturns(stripEscapes(text));
}
