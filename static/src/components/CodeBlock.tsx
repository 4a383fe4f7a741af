// Piece of code: a file, a diff, or code in a message. Has colours, line numbers, a copy button and
// a fold.

import { signal } from "@preact/signals";
import type { ComponentChild, ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { useScrollFocus } from "../dom/scrollFocus";
import type { CodePiece } from "../markdown/highlight";
import type { CodeLine, CodeLineKind } from "../state/codeText";
import { CopyButton } from "./CopyButton";
import { FOLDED_LINES } from "./Fence";
import { FoldButton } from "./FoldButton";

type HighlightLines = typeof import("../markdown/highlight").highlightLines;

/** `null` until loaded. Code is plain until then. */
const highlighter = signal<HighlightLines | null>(null);
let isLoading = false;

function loadHighlighter(): void {
  if (isLoading) return;
  isLoading = true;
  import("../markdown/highlight").then(
    ({ highlightLines }) => (highlighter.value = highlightLines),
    // Without the highlighter, code stays plain. The next piece of code retries.
    () => (isLoading = false),
  );
}

interface CodeBlockProps {
  /** Name for screen readers. */
  label: string;
  lines: readonly CodeLine[];
  /** Name of a language, or extension of a file. */
  language?: string | undefined;
  /** Text to copy. */
  text: string;
  /** Class of the `code` element. */
  codeClass?: string | undefined;
}

export function CodeBlock({ label, lines, language, text, codeClass }: CodeBlockProps) {
  const [unfolded, setUnfolded] = useState(false);
  useEffect(loadHighlighter, []);
  const isLong = lines.length > FOLDED_LINES;
  const highlightLines = highlighter.value;
  const drawn = useMemo(() => {
    const shown = unfolded ? lines : lines.slice(0, FOLDED_LINES);
    const coloured = language && highlightLines ? colouredLines(shown, language, highlightLines) : shown.map(({ text }) => [text]);
    return { numbers: numbersOf(shown), code: drawLines(shown, coloured) };
  }, [lines, unfolded, language, highlightLines]);
  return (
    <div class="code-block">
      <div class="code-box" ref={useScrollFocus<HTMLDivElement>(label, drawn)}>
        {drawn.numbers && (
          <pre class="code-numbers" aria-hidden="true">
            {drawn.numbers}
          </pre>
        )}
        <pre dir="ltr">
          <code class={codeClass}>{drawn.code}</code>
        </pre>
      </div>
      <CopyButton text={() => text} />
      {isLong && <FoldButton lines={lines.length} unfolded={unfolded} onChange={setUnfolded} />}
    </div>
  );
}

/** Returns the numbers as one text beside the code, so they are never selected with it. */
function numbersOf(lines: readonly CodeLine[]): string {
  return lines.some(({ number }) => number) ? lines.map(({ number = "" }) => number).join("\n") : "";
}

/** Highlights lines. In a diff, the old and the new side are each a text of their own. */
function colouredLines(lines: readonly CodeLine[], language: string, highlight: HighlightLines): CodePiece[][] {
  if (!lines.some(({ sign }) => sign !== undefined)) return highlight(lines.map(({ text }) => text), language);
  const without = (kind: CodeLineKind) => lines.filter((line) => line.sign !== undefined && line.kind !== kind);
  const coloured = new Map<CodeLine, CodePiece[]>();
  // The new side is the last, so it colours the lines that both share.
  for (const side of [without("added"), without("removed")]) {
    const pieces = highlight(side.map(({ text }) => text), language);
    side.forEach((line, n) => coloured.set(line, pieces[n]!));
  }
  return lines.map((line) => coloured.get(line) ?? [line.text]);
}

/** Draws consecutive lines of one kind as one element, and neighbouring texts as one text. */
function drawLines(lines: readonly CodeLine[], coloured: readonly (readonly CodePiece[])[]): ComponentChildren {
  const drawn: ComponentChild[] = [];
  for (let at = 0; at < lines.length; ) {
    const { kind } = lines[at]!;
    const pieces: CodePiece[] = [];
    for (; at < lines.length && lines[at]!.kind === kind; at += 1) addPieces(pieces, [lines[at]!.sign ?? "", ...coloured[at]!, "\n"]);
    drawn.push(kind ? <span class={kind}>{drawPieces(pieces)}</span> : drawPieces(pieces));
  }
  return drawn;
}

function addPieces(to: CodePiece[], more: readonly CodePiece[]): void {
  for (const piece of more) {
    const last = to.at(-1);
    if (typeof piece === "string" && typeof last === "string") to[to.length - 1] = last + piece;
    else if (piece !== "") to.push(piece);
  }
}

function drawPieces(pieces: readonly CodePiece[]): ComponentChild[] {
  return pieces.map((piece) => (typeof piece === "string" ? piece : <span class={piece.className}>{drawPieces(piece.pieces)}</span>));
}
