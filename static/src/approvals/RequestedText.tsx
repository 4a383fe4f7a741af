// Text to approve. Marks what a reader would miss, and a cut-off text, so that its beginning does
// not pass for the whole.

import { useMemo, useRef } from "preact/hooks";
import { plural } from "../format";
import { useIsCut } from "./isCut";
import { marksNote, visiblePieces } from "./visibleText";

export function RequestedText({ text }: { text: string }) {
  const box = useRef<HTMLPreElement>(null);
  const isCut = useIsCut(box, text);
  const pieces = useMemo(() => visiblePieces(text), [text]);
  const note = useMemo(() => marksNote(pieces), [pieces]);

  return (
    <>
      <pre class="code" tabIndex={0} dir="ltr" ref={box}>
        {pieces.map(({ kind, text, note }, index) => {
          if (kind === undefined) return text;
          if (kind === "gap") return <GapMark key={index} text={text} />;
          return (
            <mark key={index} class={kind} title={note}>
              {text}
            </mark>
          );
        })}
      </pre>
      {isCut && <p class="cut">{plural(text.trimEnd().split("\n").length, "line")}, scroll to read all</p>}
      {note && <p class="confirm-warning">{note}</p>}
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
