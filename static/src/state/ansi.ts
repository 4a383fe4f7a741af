// A program's output, cut into pieces of one colour. Pure.

import Anser from "anser";
import { settledLines, withoutEscapes } from "../escapes";

export interface Piece {
  text: string;
  /** Class names: one of the sixteen colours each for ink and ground, and decorations. */
  look: string | undefined;
  /** Colours beyond the sixteen, as CSS. */
  colours: { color?: string; backgroundColor?: string } | undefined;
}

/** Only the end of a long output is coloured and shown: a flood must not slow the page down. */
const LIMIT = 40_000;
/** It begins with a whole line, unless its first one is longer than this. */
const LONGEST_LINE = 1000;

export function coloured(output: string): Piece[] {
  const text = withoutLastBreaks(settledLines(withoutEscapes(tailOf(output), true)));
  if (text === "") return [];
  return Anser.ansiToJson(text, { json: true, use_classes: true, remove_empty: true }).map((piece) => ({
    text: piece.content,
    look: lookOf(piece),
    colours: coloursOf(piece),
  }));
}

function tailOf(output: string): string {
  if (output.length <= LIMIT) return output;
  const tail = output.slice(-LIMIT);
  return tail.slice(tail.slice(0, LONGEST_LINE).indexOf("\n") + 1);
}

/** A loop: the pattern would try each break on its way. */
function withoutLastBreaks(text: string): string {
  let end = text.length;
  while (text[end - 1] === "\n") end -= 1;
  return text.slice(0, end);
}

type Coloured = ReturnType<typeof Anser.ansiToJson>[number];

const NAMED = /^ansi-(?:bright-)?(?:black|red|green|yellow|blue|magenta|cyan|white)$/;

function lookOf({ fg, bg, decorations }: Coloured): string | undefined {
  const ground = bg && NAMED.test(bg) ? `${bg}-ground` : "";
  const looks = [fg && NAMED.test(fg) ? fg : "", ground, ...decorations.map((one) => `ansi-${one}`)].filter(Boolean);
  return looks.length > 0 ? looks.join(" ") : undefined;
}

const RGB = /^\d{1,3}, ?\d{1,3}, ?\d{1,3}$/;

function coloursOf({ fg, bg, fg_truecolor, bg_truecolor }: Coloured): Piece["colours"] {
  const color = beyondSixteen(fg, fg_truecolor);
  const backgroundColor = beyondSixteen(bg, bg_truecolor);
  return color || backgroundColor ? { color, backgroundColor } : undefined;
}

function beyondSixteen(name: string | null, exact: string | null): string | undefined {
  if (name === "ansi-truecolor" && exact && RGB.test(exact)) return `rgb(${exact})`;
  const palette = /^ansi-palette-(\d{1,3})$/.exec(name ?? "");
  return palette ? paletteColour(Number(palette[1])) : undefined;
}

/** xterm's palette: a cube of 6×6×6 from 16 on, then 24 greys. */
function paletteColour(index: number): string | undefined {
  if (index < 16 || index > 255) return undefined;
  if (index >= 232) return `rgb(${Array(3).fill(8 + (index - 232) * 10).join(" ")})`;
  const level = (step: number) => (step === 0 ? 0 : 55 + step * 40);
  const cube = index - 16;
  return `rgb(${level(Math.floor(cube / 36))} ${level(Math.floor(cube / 6) % 6)} ${level(cube % 6)})`;
}
