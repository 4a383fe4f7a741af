// Markdown that grows: finished blocks are rendered once and frozen, only the tail is parsed again.

import type { Token } from "marked";
import type { ComponentChild } from "preact";
import { withoutEscapes } from "../escapes";
import { blocksOf, shown } from "./render";

/** Closes what is half open, so that a `**` on its way is no star. Loaded once there is text that grows. */
let closed: (text: string) => string = (text) => text;
let coming: Promise<void> | null = null;

/** Brings the code that closes half-open markdown. Until it is there, a tail is shown as it stands. */
export function expectGrowth(): Promise<void> {
  coming ??= import("remend").then(
    (loaded) => void (closed = loaded.default),
    // Without it a tail stands as it is; the next one who asks tries again.
    () => void (coming = null),
  );
  return coming;
}

/** How many make a part at most. A browser looks at each of an element's children when one of them changes. */
const PART = 32;

/** Blocks as they are shown. */
export type Part = ComponentChild[];

export interface Blocks {
  /** The text that these blocks were made of. */
  text: string;
  /** Whether more was to come. */
  open: boolean;
  /** How much of `text` the frozen blocks hold. */
  frozenTo: number;
  /** Those in their order. Each is made once, and a part that is full is never replaced, so neither is drawn or laid out again. */
  parts: readonly Part[];
  /** What may still change. */
  tail: Part;
}

export const noBlocks: Blocks = { text: "", open: true, frozenTo: 0, parts: [], tail: [] };

/** A line that says where a link leads which stands elsewhere. No name has a bracket in it, so none is looked for any further. */
const DEFINITION = /^ {0,3}\[(?:\\.|[^[\]\\])+\]:/m;

/** The blocks of `text`, which usually continues what `before` was made of. `open` while more is to come. */
export function advance(before: Blocks, source: string, open: boolean): Blocks {
  const text = withoutEscapes(source.replace(/\r\n?/g, "\n"));
  if (!before.open && !open && text === before.text) return before;
  // Where no more was to come, the last block is frozen too, and more may be more of it. And a definition may be of a link in a
  // block that is frozen: in the end they are read together.
  const goesOn = before.open && text.startsWith(before.text) && (open || !DEFINITION.test(text));
  const start = goesOn ? before : noBlocks;
  const blocks = blocksOf(text.slice(start.frozenTo));
  const keep = open ? lastBlock(blocks) : blocks.length;
  const finished = blocks.slice(0, keep);
  const rest = blocks.slice(keep).map(({ raw }) => raw).join("");
  return {
    text,
    open,
    frozenTo: start.frozenTo + finished.reduce((length, { raw }) => length + raw.length, 0),
    parts: append(start.parts, draw(finished, false)),
    tail: rest.trim() === "" ? [] : draw(blocksOf(closed(rest)), true),
  };
}

function draw(blocks: readonly Token[], open: boolean): Part {
  return blocks.map((block) => shown(block, open)).filter((block) => block !== null);
}

function append(parts: Blocks["parts"], more: Part): Blocks["parts"] {
  if (more.length === 0) return parts;
  const last = parts.at(-1) ?? [];
  const open = last.length < PART ? last : [];
  const blocks = [...open, ...more];
  const added = Array.from({ length: Math.ceil(blocks.length / PART) }, (_, n) => blocks.slice(n * PART, (n + 1) * PART));
  return [...(open === last ? parts.slice(0, -1) : parts), ...added];
}

/** Where the block that may still grow begins: blank lines behind it do not end it (a list goes on after them). */
function lastBlock(blocks: readonly Token[]): number {
  return Math.max(0, blocks.findLastIndex(({ type }) => type !== "space"));
}
