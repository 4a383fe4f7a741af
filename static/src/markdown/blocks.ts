// Growing markdown. Finished blocks are rendered once and frozen; only the tail is parsed again.

import type { Token } from "marked";
import type { ComponentChild } from "preact";
import { stripEscapes } from "../escapes";
import { blocksOf, drawBlock } from "./render";

/** Closes half-open markdown, so an unfinished `**` shows no asterisks. Loaded once text grows. */
let closeMarkdown: (text: string) => string = (text) => text;
let pending: Promise<void> | null = null;

/** Loads the code that closes half-open markdown. Until then a tail is shown as is. */
export function loadMarkdownCloser(): Promise<void> {
  pending ??= import("remend").then(
    (loaded) => void (closeMarkdown = loaded.default),
    // The tail stays as is. The next call retries.
    () => void (pending = null),
  );
  return pending;
}

/** Blocks per group. A browser checks all children of an element when one of them changes. */
const GROUP_SIZE = 32;

/** Rendered blocks. */
export type BlockGroup = ComponentChild[];

export interface MarkdownBlocks {
  /** Source text of these blocks. */
  text: string;
  /** True if more text was expected. */
  open: boolean;
  /** Length of `text` held by the frozen blocks. */
  frozenTo: number;
  /**
   * Frozen groups in order. A full group is never replaced, so it is neither drawn nor laid out
   * again.
   */
  parts: readonly BlockGroup[];
  /** Depths of the headings around the next block, outermost first. */
  outline: readonly number[];
  /** Blocks that may still change. */
  tail: BlockGroup;
}

export const noBlocks: MarkdownBlocks = { text: "", open: true, frozenTo: 0, parts: [], outline: [], tail: [] };

/** Link definition. Names contain no brackets, so the match ends early. */
const DEFINITION = /^ {0,3}\[(?:\\.|[^[\]\\])+\]:/m;

/**
 * Returns the blocks of `text`, which usually continues the text of `before`. `open`: more text
 * will come.
 */
export function advance(before: MarkdownBlocks, source: string, open: boolean): MarkdownBlocks {
  const text = stripEscapes(source.replace(/\r\n?/g, "\n"));
  if (!before.open && !open && text === before.text) return before;
  // A finished text has a frozen last block, so an extended one is parsed anew. A definition may
  // resolve a link in a frozen block, so the final parse covers everything.
  const goesOn = before.open && text.startsWith(before.text) && (open || !DEFINITION.test(text));
  const start = goesOn ? before : noBlocks;
  const blocks = blocksOf(text.slice(start.frozenTo));
  const keep = open ? lastBlock(blocks) : blocks.length;
  const finished = blocks.slice(0, keep);
  const rest = blocks.slice(keep).map(({ raw }) => raw).join("");
  const outline = [...start.outline];
  const drawn = draw(finished, false, outline);
  return {
    text,
    open,
    frozenTo: start.frozenTo + finished.reduce((length, { raw }) => length + raw.length, 0),
    parts: append(start.parts, drawn),
    tail: rest.trim() === "" ? [] : draw(blocksOf(closeMarkdown(rest)), true, [...outline]),
    outline,
  };
}

function draw(blocks: readonly Token[], open: boolean, outline: number[]): BlockGroup {
  return blocks.map((block) => drawBlock(block, open, outline)).filter((block) => block !== null);
}

function append(parts: MarkdownBlocks["parts"], more: BlockGroup): MarkdownBlocks["parts"] {
  if (more.length === 0) return parts;
  const last = parts.at(-1) ?? [];
  const open = last.length < GROUP_SIZE ? last : [];
  const blocks = [...open, ...more];
  const added = Array.from({ length: Math.ceil(blocks.length / GROUP_SIZE) }, (_, n) => blocks.slice(n * GROUP_SIZE, (n + 1) * GROUP_SIZE));
  return [...(open === last ? parts.slice(0, -1) : parts), ...added];
}

/**
 * Returns the index of the block that may still grow. Blank lines do not end a block, for example a
 * list.
 */
function lastBlock(blocks: readonly Token[]): number {
  return Math.max(0, blocks.findLastIndex(({ type }) => type !== "space"));
}
