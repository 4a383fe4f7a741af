// Files, diffs and output as numbered lines of code. Pure.

import { revealControls } from "../escapes";
import { bytes as sizeText } from "../format";

/** Kind of a marked line. `place`: header of a diff's hunk. `gap`: note on omitted lines. */
export type CodeLineKind = "added" | "removed" | "place" | "gap";

export interface CodeLine {
  text: string;
  /** Number in the file, or the old and the new number in a diff. Absent if unknown. */
  number?: string;
  kind?: CodeLineKind;
  /** First character of a line in a diff. */
  sign?: string;
}

/** Returns the language of a file for the highlighter: its extension, or its name. */
export function languageOf(path: string): string {
  const name = path.slice(path.lastIndexOf("/") + 1);
  return name.slice(name.lastIndexOf(".") + 1).toLowerCase();
}

/** Returns the lines of a text without numbers. */
export function plainLines(text: string): CodeLine[] {
  return linesIn(text).map((line) => ({ text: line }));
}

/**
 * Returns the numbered lines of a file. Control characters are visible. `whole`: size of a
 * truncated file in bytes. Lines after the gap have no known number.
 */
export function fileLines(text: string, whole?: number): CodeLine[] {
  const { head, gap, tail } = wholeLines(text.replace(/^\ufeff/, ""), whole);
  const first = linesIn(head).map((line, n): CodeLine => ({ text: revealControls(line), number: String(n + 1) }));
  if (gap === null) return first;
  const last = linesIn(tail).map((line): CodeLine => ({ text: revealControls(line) }));
  return [...(head === "" ? [] : first), { text: gap, kind: "gap" }, ...(tail === "" ? [] : last)];
}

/** Text of which the middle may be missing. */
interface PartialText {
  head: string;
  /** Note on the missing part. `null`: the text is complete, and `head` is all of it. */
  gap: string | null;
  tail: string;
}

const OMISSION = /(?:^|\n)… (\d+) bytes left out …\n/g;

/**
 * Splits a truncated text at the server's note on the missing bytes. The lines that the cut went
 * through are dropped and counted as missing. `whole`: size of the complete text in bytes. A file
 * may contain such a note itself, so the sizes must agree.
 */
export function wholeLines(text: string, whole: number | undefined): PartialText {
  if (whole !== undefined) {
    for (const match of text.matchAll(OMISSION)) {
      const [head, tail] = [text.slice(0, match.index), text.slice(match.index + match[0].length)];
      const [before, after] = [sizeOf(head), sizeOf(tail)];
      if (before + after + Number(match[1]) !== whole) continue;
      // A lone line that is longer than its part stays, marked as cut.
      const end = head.lastIndexOf("\n") + 1;
      const begin = tail.indexOf("\n") + 1;
      const [first, last] = [end > 0 ? head.slice(0, end) : head, tail.slice(begin)];
      const gap = `⋯ ${sizeText(whole - sizeOf(first) - sizeOf(last))} left out ⋯`;
      return { head: end > 0 || head === "" ? first : `${first}…`, gap, tail: begin > 0 || tail === "" ? last : `…${last}` };
    }
  }
  return { head: text, gap: null, tail: "" };
}

/** Returns a truncated text in whole lines, with the note between them. */
export function textInWholeLines(text: string, whole: number | undefined): string {
  const { head, gap, tail } = wholeLines(text, whole);
  return gap === null ? head : [head.replace(/\n$/, ""), gap, tail].filter(Boolean).join("\n");
}

/**
 * Returns the newest lines of an output in at most `limit` characters. A longer last line keeps its
 * end, marked as cut.
 */
export function newestLines(output: string, limit: number): string {
  if (output.length <= limit) return output;
  const tail = output.slice(-limit);
  const begin = tail.indexOf("\n") + 1;
  return begin === 0 || begin > limit / 2 ? `…${tail}` : tail.slice(begin);
}

/** Splits a text into lines. A line break at the end begins no further line. */
function linesIn(text: string): string[] {
  return text.replace(/\r?\n$/, "").split(/\r?\n/);
}

const encoder = new TextEncoder();
const sizeOf = (text: string) => encoder.encode(text).length;

const HUNK = /^@@ -(\d{1,9})(?:,\d{1,9})? \+(\d{1,9})(?:,\d{1,9})? @@/;
const OMISSION_LINE = /^… \d+ bytes left out …$/;
const KINDS: Record<string, CodeLineKind> = { "+": "added", "-": "removed" };

/** Line of a diff with its numbers in both files. `null`: not in that file, or unknown. */
export interface NumberedDiffLine extends Omit<CodeLine, "number"> {
  old: number | null;
  new: number | null;
}

/** Returns the lines of a unified diff without its file header, because the call names the file. */
export function numberedDiff(text: string): NumberedDiffLine[] {
  const all = withoutCutLines(linesIn(text));
  const lines = all.slice(Math.max(0, all.findIndex((line) => line.startsWith("@@"))));
  let old: number | null = null;
  let added: number | null = null;
  return lines.map((line) => {
    const hunk = HUNK.exec(line);
    if (hunk || /^(?:@@|\\)/.test(line) || OMISSION_LINE.test(line)) {
      if (hunk) [old, added] = [Number(hunk[1]), Number(hunk[2])];
      else if (!line.startsWith("\\")) old = added = null;
      return { text: revealControls(line), kind: OMISSION_LINE.test(line) ? "gap" : "place", old: null, new: null };
    }
    const sign = line[0] ?? " ";
    const kind = KINDS[sign];
    return {
      text: revealControls(line.slice(1)),
      sign,
      kind,
      old: kind === "added" || old === null ? null : old++,
      new: kind === "removed" || added === null ? null : added++,
    };
  });
}

/** Returns the lines of a unified diff with both numbers as one text. */
export function diffLines(text: string): CodeLine[] {
  const lines = numberedDiff(text);
  const numbers = lines.map(({ old, new: added }) => [old, added].map((number) => number?.toString() ?? ""));
  const isNumbered = numbers.some((pair) => pair.some(Boolean));
  const widths = [0, 1].map((side) => Math.max(0, ...numbers.map((pair) => pair[side]!.length)));
  return lines.map(({ old: _, new: __, ...line }, n) =>
    isNumbered ? { ...line, number: numbers[n]!.map((number, side) => number.padStart(widths[side]!)).join(" ") } : line,
  );
}

/** Removes the lines beside an omission, which the cut went through. */
function withoutCutLines(lines: string[]): string[] {
  const isGap = (line: string | undefined) => line !== undefined && OMISSION_LINE.test(line);
  return lines.some(isGap) ? lines.filter((line, n) => isGap(line) || !(isGap(lines[n - 1]) || isGap(lines[n + 1]))) : lines;
}
