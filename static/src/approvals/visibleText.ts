// Text to approve, with what a reader would miss: unseen characters, look-alikes, long gaps.

import { INVISIBLE } from "../escapes";
import { plural } from "../format";

export interface VisiblePiece {
  text: string;
  /** Absent for plain text. */
  kind?: "hidden" | "look-alike" | "gap";
  /** Explanation of a marked piece. */
  note?: string;
}

/** Run of empty lines or blanks long enough to push text out of sight. */
const GAP = /((?<=^|\n)(?:[^\S\n]*\n){3,}|[^\S\n]{40,})/;
/** Blanks other than the usual one. A tab and a line break stay. */
const ODD_BLANK = /[^\S \t\n\r]/;
const WORD = /[\p{L}\p{M}\p{N}_]+/gu;

const NOTES: Record<number, string> = {
  0x08: "backspace",
  0x0d: "carriage return, which can overwrite the line",
  0x1b: "escape, which can control a terminal",
  0xa0: "no-break space",
  0xad: "soft hyphen",
  0x200b: "zero-width space",
  0x200c: "zero-width non-joiner",
  0x200d: "zero-width joiner",
  0x3000: "wide blank",
  0xfeff: "zero-width no-break space",
};

/** Letters and signs that look like another one: the plain one, then its doubles. */
const DOUBLES = [
  "aаα", "bЬ", "cсϲ", "dԁ", "eе", "gɡ", "hһ", "iіι", "jј", "kк", "lӏ", "mм", "nո", "oоοօ", "pрρ", "qԛ", "rг", "sѕ", "tт", "uυս", "vνѵ", "wԝѡ", "xхχ", "yуγ", "zᴢ",
  "AАΑ", "BВΒ", "CСϹ", "EЕΕ", "FϜ", "GԌ", "HНΗ", "IІΙ", "JЈ", "KКΚ", "MМΜ", "NΝ", "OОΟ", "PРΡ", "QԚ", "SЅ", "TТΤ", "VѴ", "WԜ", "XХΧ", "YҮΥ", "ZΖ",
  "-‐‑‒–—−﹘", "'‘’‚‛′ʹʼ", '"“”„″', "/∕⁄╱⧸", "\\∖⧵", ":∶։ː꞉", "|∣ǀ❘", ",‚،", "<‹˂", ">›˃", "*∗⁎", "~∼˜⁓", "!ǃ", "=═", "_ˍ",
];
const PLAIN = new Map(DOUBLES.flatMap(([plain = "", ...doubles]) => doubles.map((double) => [double, plain] as const)));

/** Splits a text into plain and marked pieces. */
export function visiblePieces(text: string): VisiblePiece[] {
  return text.split(GAP).flatMap((piece, n) => (n % 2 === 0 ? markedPieces(piece) : [gap(piece)]));
}

/** Returns a warning about the marked characters, or `null` if there are none. */
export function marksNote(pieces: readonly VisiblePiece[]): string | null {
  const count = (kind: VisiblePiece["kind"]) => pieces.filter((piece) => piece.kind === kind).length;
  const [unseen, doubles] = [count("hidden"), count("look-alike")];
  const parts = [unseen > 0 && plural(unseen, "unseen character"), doubles > 0 && plural(doubles, "look-alike")];
  const found = parts.filter(Boolean).join(" and ");
  return found ? `Contains ${found}` : null;
}

function gap(blanks: string): VisiblePiece {
  const lines = blanks.split("\n").length - 1;
  return { kind: "gap", text: `⋯ ${lines > 0 ? plural(lines, "empty line") : plural(blanks.length, "blank")} ⋯${lines > 0 ? "\n" : ""}` };
}

function markedPieces(text: string): VisiblePiece[] {
  const unseen = new Set([...text.matchAll(INVISIBLE)].map(({ index }) => index));
  const suspects = suspectPlaces(text);
  const pieces: VisiblePiece[] = [];
  let at = 0;
  for (const char of text) {
    const piece = markOf(char, unseen.has(at), suspects.has(at));
    const last = pieces.at(-1);
    if (piece.kind === undefined && last && last.kind === undefined) last.text += char;
    else pieces.push(piece);
    at += char.length;
  }
  return pieces;
}

function markOf(char: string, isUnseen: boolean, isSuspect: boolean): VisiblePiece {
  const code = char.codePointAt(0) ?? 0;
  if (isUnseen || ODD_BLANK.test(char)) {
    return { kind: "hidden", text: `\\u{${code.toString(16)}}`, note: NOTES[code] ?? (isUnseen ? "unseen character" : "unusual blank") };
  }
  if (!isSuspect) return { text: char };
  return { kind: "look-alike", text: char, note: `U+${code.toString(16).toUpperCase().padStart(4, "0")}, looks like ${plainOf(char)}` };
}

/** Returns the plain character that this one looks like. */
function plainOf(char: string): string | undefined {
  if (char <= "\u007f") return undefined;
  const known = PLAIN.get(char);
  if (known !== undefined) return known;
  const folded = char.normalize("NFKC");
  return folded.length === 1 && folded > " " && folded < "\u007f" ? folded : undefined;
}

/**
 * Returns the places of look-alikes. A letter of another script counts if its word has plain
 * letters too, or nothing but look-alikes. Other text in that script stays as it is.
 */
function suspectPlaces(text: string): Set<number> {
  const places = new Set<number>();
  let at = 0;
  for (const char of text) {
    if (plainOf(char) !== undefined && !/\p{L}/u.test(char)) places.add(at);
    at += char.length;
  }
  for (const { 0: word, index } of text.matchAll(WORD)) {
    const chars = [...word];
    const isMixed = chars.some((char) => /[a-z]/i.test(char)) || chars.every((char) => char <= "\u007f" || plainOf(char) !== undefined);
    let place = index;
    for (const char of chars) {
      if (isMixed && plainOf(char) !== undefined) places.add(place);
      place += char.length;
    }
  }
  return places;
}
