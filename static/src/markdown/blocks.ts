// Markdown that grows: finished blocks are rendered once and frozen, only the tail is parsed again.

import type { Token } from "marked";
import { withoutEscapes } from "../escapes";
import { blocksOf, render, renderBlock } from "./render";

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

/** A line that says where a link leads which stands elsewhere. */
const DEFINITION = /^ {0,3}\[[^\]]+\]:/m;

/** The blocks of `text`, which usually continues what `before` was made of. `open` while more is to come. */
export function advance(before: Blocks, source: string, open: boolean): Blocks {
  const text = withoutEscapes(source.replace(/\r\n?/g, "\n"));
  // A definition may be of a link in a block that is frozen: in the end they are read together.
  const goesOn = text.startsWith(before.text) && (open || !DEFINITION.test(text));
  const start = goesOn ? before : noBlocks;
  const blocks = blocksOf(text.slice(start.frozenTo));
  const keep = open ? lastBlock(blocks) : blocks.length;
  const finished = blocks.slice(0, keep);
  const frozen = finished.filter(({ type }) => type !== "space").map(renderBlock);
  const rest = blocks.slice(keep).map(({ raw }) => raw).join("");
  return {
    text,
    frozenTo: start.frozenTo + finished.reduce((length, { raw }) => length + raw.length, 0),
    parts: frozen.reduce(append, start.parts),
    tail: rest.trim() === "" ? "" : render(open ? closed(rest) : rest),
  };
}

function append(parts: Blocks["parts"], block: string): Blocks["parts"] {
  const last = parts.at(-1);
  return last && last.length < PART ? [...parts.slice(0, -1), [...last, block]] : [...parts, [block]];
}

/** Where the block that may still grow begins: blank lines behind it do not end it (a list goes on after them). */
function lastBlock(blocks: readonly Token[]): number {
  return Math.max(0, blocks.findLastIndex(({ type }) => type !== "space"));
}
