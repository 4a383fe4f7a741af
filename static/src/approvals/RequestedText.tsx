// Text to approve. Marks what a reader would miss, and a cut-off text, so that its beginning does
// not pass for the whole.

import { useMemo, useRef } from "preact/hooks";
import { plural } from "../format";
import { useIsCut } from "./isCut";
import { marksNote, type VisiblePiece, visiblePieces } from "./visibleText";

/** Classes of the lines of a diff, by their first character. */
const DIFF_LINES: Record<string, string> = { "+": "added", "-": "removed", "@": "place" };

export function RequestedText({ text, isDiff = false }: { text: string; isDiff?: boolean }) {
  const box = useRef<HTMLPreElement>(null);
  const isCut = useIsCut(box, text);
  const lines = useMemo(() => (isDiff ? text.trimEnd().split("\n") : [text]).map((line) => ({ line, pieces: visiblePieces(line) })), [text, isDiff]);
  const note = useMemo(() => marksNote(lines.flatMap(({ pieces }) => pieces)), [lines]);

  return (
    <>
      <pre class="code" tabIndex={0} dir="ltr" ref={box}>
        {isDiff ? (
          <code class="diff">
            {lines.map(({ line, pieces }, index) => (
              <span key={index} class={DIFF_LINES[line[0] ?? ""] ?? ""}>
                <Pieces pieces={pieces} />
                {"\n"}
              </span>
            ))}
          </code>
        ) : (
          lines.map(({ pieces }) => <Pieces pieces={pieces} />)
        )}
      </pre>
      {isCut && <p class="cut">{plural(text.trimEnd().split("\n").length, "line")}, scroll to read all</p>}
      {note && <p class="confirm-warning">{note}</p>}
    </>
  );
}

function Pieces({ pieces }: { pieces: readonly VisiblePiece[] }) {
  return (
    <>
      {pieces.map(({ kind, text, note }, index) => {
        if (kind === undefined) return text;
        if (kind === "gap") return <GapMark key={index} text={text} />;
        return (
          <mark key={index} class={kind} title={note}>
            {text}
          </mark>
        );
      })}
    </>
  );
}

/** Long run of blanks. The line break after it is text. */
function GapMark({ text }: { text: string }) {
  return (
    <>
      <span class="gap">{text.trimEnd()}</span>
      {text.endsWith("\n") && "\n"}
    </>
  );
}
