// Markdown that grows: finished blocks are rendered once and frozen, only the tail is parsed again.

import { withoutEscapes } from "../escapes";
import { blocksOf, render } from "./render";

/** Closes what is half open, so that a `**` on its way is no star. Loaded once there is text that grows. */
let closed: (text: string) => string = (text) => text;
let coming: Promise<void> | null = null;

/** Brings the code that closes half-open markdown. Until it is there, a tail is shown as it stands. */
export function expectGrowth(): Promise<void> {
  coming ??= import("remend").then((loaded) => void (closed = loaded.default));
  return coming;
}

/** How many blocks make a part. A browser looks at each of an element's children when one of them changes. */
const PART = 32;

export interface Blocks {
  /** The text that these blocks were made of. */
  text: string;
  /** How much of `text` the frozen blocks hold. */
  frozenTo: number;
  /** Their HTML, in parts of so many; a part that is full is never replaced, and so is not drawn or laid out again. */
  parts: readonly (readonly string[])[];
  /** The HTML of what may still change. */
  tail: string;
}

export const noBlocks: Blocks = { text: "", frozenTo: 0, parts: [], tail: "" };

/** The blocks of `text`, which usually continues what `before` was made of. `open` while more is to come. */
export function advance(before: Blocks, source: string, open: boolean): Blocks {
  const text = withoutEscapes(source.replace(/\r\n?/g, "\n"));
  const start = text.startsWith(before.text) ? before : noBlocks;
  const raw = blocksOf(text.slice(start.frozenTo));
  const keep = open ? lastBlock(raw) : raw.length;
  const finished = raw.slice(0, keep);
  const frozen = finished.filter((block) => block.trim() !== "").map(render);
  const rest = raw.slice(keep).join("");
  return {
    text,
    frozenTo: start.frozenTo + finished.reduce((length, block) => length + block.length, 0),
    parts: frozen.reduce(append, start.parts),
    tail: rest.trim() === "" ? "" : render(open ? closed(rest) : rest),
  };
}

function append(parts: Blocks["parts"], block: string): Blocks["parts"] {
  const last = parts.at(-1);
  return last && last.length < PART ? [...parts.slice(0, -1), [...last, block]] : [...parts, [block]];
}

/** Where the block that may still grow begins: blank lines behind it do not end it (a list goes on after them). */
function lastBlock(raw: readonly string[]): number {
  return Math.max(0, raw.findLastIndex((block) => block.trim() !== ""));
}
