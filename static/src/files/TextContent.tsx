// Text of a file with line numbers and code colours.

import { useEffect, useState } from "preact/hooks";
import { bytes } from "../format";
import { revealControl } from "./controlText";
import { colouredLines, type ColouredPiece } from "./colouredLines";
import { languageOfFile } from "./languageOfFile";
import type { FileView, OpenedFile } from "./openedFile";

/** Lines of a block. The browser lays out only the blocks in view. */
const BLOCK = 200;
/** Longest line that is shown whole, in characters. */
const LONGEST_LINE = 10_000;

interface TextContentProps {
  file: OpenedFile;
  view: Extract<FileView, { kind: "text" }>;
}

export function TextContent({ file, view }: TextContentProps) {
  const { text } = view;
  const [coloured, setColoured] = useState<{ text: string; lines: ColouredPiece[][] } | null>(null);

  useEffect(() => {
    let isCurrent = true;
    void colouredLines(text, languageOfFile(file.entry.path)).then((lines) => {
      if (isCurrent && lines) setColoured({ text, lines });
    });
    return () => void (isCurrent = false);
  }, [text]);

  if (text === "" && view.total === 0) return <p class="file-note">The file is empty.</p>;
  const plain = text.split("\n");
  // The line end of the last line begins no further line.
  if (plain.length > 1 && plain.at(-1) === "") plain.pop();
  const colours = coloured?.text === text ? coloured.lines : null;
  const blocks = Array.from({ length: Math.ceil(plain.length / BLOCK) }, (_, n) => n * BLOCK);
  return (
    <div class="file-text" tabIndex={0} role="region" aria-label="Content">
      {blocks.map((start) => (
        <TextBlock key={start} start={start} plain={plain.slice(start, start + BLOCK)} colours={colours?.slice(start, start + BLOCK)} />
      ))}
      {view.loaded < view.total && (
        <p class="file-more">
          <span class="muted">
            {bytes(view.loaded)} of {bytes(view.total)}
          </span>
          <button type="button" class="button" disabled={view.loading} onClick={() => void file.more()}>
            {view.loading ? "Loading…" : "Load more"}
          </button>
        </p>
      )}
    </div>
  );
}

interface TextBlockProps {
  /** Number of lines before the block. */
  start: number;
  plain: readonly string[];
  colours: readonly ColouredPiece[][] | undefined;
}

function TextBlock({ start, plain, colours }: TextBlockProps) {
  return (
    <div class="file-block" style={{ "--lines": plain.length }}>
      <pre class="file-numbers" aria-hidden="true">
        {plain.map((_, n) => start + n + 1).join("\n")}
      </pre>
      <pre class="file-lines">
        <code dir="ltr">
          {plain.map((line, n) => (
            <>
              <TextLine line={line} pieces={colours?.[n]} />
              {"\n"}
            </>
          ))}
        </code>
      </pre>
    </div>
  );
}

function TextLine({ line, pieces }: { line: string; pieces: readonly ColouredPiece[] | undefined }) {
  if (line.length > LONGEST_LINE) {
    return (
      <>
        {revealControl(line.slice(0, LONGEST_LINE))}
        <span class="badge">{(line.length - LONGEST_LINE).toLocaleString("en")} more characters</span>
      </>
    );
  }
  if (!pieces) return <>{revealControl(line)}</>;
  return (
    <>
      {pieces.map(({ text, className }, n) => (className ? <span key={n} class={className}>{revealControl(text)}</span> : revealControl(text)))}
    </>
  );
}
