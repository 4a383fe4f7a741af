// Program output split into runs of one colour. Pure.

import Anser from "anser";
import { applyCarriageReturns, stripEscapes } from "../escapes";

export interface ColouredText {
  text: string;
  /** Class names: foreground and background among the sixteen colours, and decorations. */
  className: string | undefined;
  /** Colours beyond the sixteen, as CSS. */
  colours: { color?: string; backgroundColor?: string } | undefined;
}

export function colouredTexts(output: string): ColouredText[] {
  const text = withoutLastBreaks(applyCarriageReturns(stripEscapes(output, true)));
  if (text === "") return [];
  return Anser.ansiToJson(text, { json: true, use_classes: true, remove_empty: true }).map((piece) => ({
    text: piece.content,
    className: classNameOf(piece),
    colours: coloursOf(piece),
  }));
}

/** Removes trailing line breaks. A loop, because a pattern would try each break. */
function withoutLastBreaks(text: string): string {
  let end = text.length;
  while (text[end - 1] === "\n") end -= 1;
  return text.slice(0, end);
}

type AnserSpan = ReturnType<typeof Anser.ansiToJson>[number];

const NAMED = /^ansi-(?:bright-)?(?:black|red|green|yellow|blue|magenta|cyan|white)$/;

function classNameOf({ fg, bg, decorations }: AnserSpan): string | undefined {
  const ground = bg && NAMED.test(bg) ? `${bg}-ground` : "";
  const looks = [fg && NAMED.test(fg) ? fg : "", ground, ...decorations.map((one) => `ansi-${one}`)].filter(Boolean);
  return looks.length > 0 ? looks.join(" ") : undefined;
}

const RGB = /^\d{1,3}, ?\d{1,3}, ?\d{1,3}$/;

function coloursOf({ fg, bg, fg_truecolor, bg_truecolor }: AnserSpan): ColouredText["colours"] {
  const color = beyondSixteen(fg, fg_truecolor);
  const backgroundColor = beyondSixteen(bg, bg_truecolor);
  return color || backgroundColor ? { color, backgroundColor } : undefined;
}

function beyondSixteen(name: string | null, exact: string | null): string | undefined {
  if (name === "ansi-truecolor" && exact && RGB.test(exact)) return `rgb(${exact})`;
  const palette = /^ansi-palette-(\d{1,3})$/.exec(name ?? "");
  return palette ? paletteColour(Number(palette[1])) : undefined;
}

/** Maps xterm's palette: a 6×6×6 cube from 16 on, then 24 greys. */
function paletteColour(index: number): string | undefined {
  if (index < 16 || index > 255) return undefined;
  if (index >= 232) return `rgb(${Array(3).fill(8 + (index - 232) * 10).join(" ")})`;
  const level = (step: number) => (step === 0 ? 0 : 55 + step * 40);
  const cube = index - 16;
  return `rgb(${level(Math.floor(cube / 36))} ${level(Math.floor(cube / 6) % 6)} ${level(cube % 6)})`;
}
