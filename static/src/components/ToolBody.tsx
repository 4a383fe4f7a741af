// Input and result of an unfolded tool call.

import { plainOutput } from "../escapes";
import { TOOL_APPEARANCES, diffOf } from "../state/toolAppearance";
import type { ToolRow } from "../state/rows";
import { CommandButtons } from "../terminal/CommandButtons";
import { truncationOf } from "../wire/eventShape";
import { BacktickText } from "./BacktickText";
import { Diff } from "./Diff";
import { FileCode } from "./FileCode";
import { GenericToolBody } from "./GenericToolBody";
import { Lines } from "./Lines";
import { Output } from "./Output";
import { TruncationNote } from "./TruncationNote";

interface ToolBodyProps {
  row: ToolRow;
  /** Argument shown in the line. */
  subject: string;
  /** True if unfolded by the user. */
  withJson: boolean;
}

export function ToolBody({ row, subject, withJson }: ToolBodyProps) {
  const diff = diffOf(row);
  const output = row.end ? row.end.content : row.output.text;
  // A diff or the written content serves as output.
  const isSilent = diff !== null || (row.name === "write" && output === "");
  const truncated = truncationOf(row.end?.extras);
  const content = row.name === "write" && typeof row.args.content === "string" ? row.args.content : null;
  return (
    <div class="tool-body">
      {row.seq === null && <Output text={row.input.text} live />}
      {row.name === "run" && subject.includes("\n") && <Lines label="Command" text={subject} language="bash" />}
      {content !== null && <FileCode path={subject} text={content} />}
      {diff && <Diff path={subject} text={diff} />}
      {row.name === "tool" && <GenericToolBody row={row} />}
      {row.name !== null && row.name !== "tool" && !Object.hasOwn(TOOL_APPEARANCES, row.name) && <Lines label="Input" text={JSON.stringify(row.args, null, 2)} language="json" />}
      {row.seq !== null && !isSilent && <Result row={row} path={subject} text={output} whole={truncated?.bytes} />}
      <TruncationNote truncated={truncated} />
      {row.name === "run" && row.seq !== null && <CommandButtons row={row} />}
      {withJson && (
        <details class="raw">
          <summary>Input and output as JSON</summary>
          <Lines label="Input and output" text={JSON.stringify({ input: row.args, output: row.end?.extras ?? null }, null, 2)} language="json" />
        </details>
      )}
    </div>
  );
}

interface ResultProps {
  row: ToolRow;
  path: string;
  text: string;
  /** Size of a truncated result in bytes. */
  whole: number | undefined;
}

/** Result of a call: a file, an error, or the output of a program. */
function Result({ row: { name, end }, path, text, whole }: ResultProps) {
  if (name === "read" && end?.outcome === "ok" && text !== "") return <FileCode path={path} text={text} whole={whole} />;
  if (name !== "run" && end?.outcome === "failed" && text !== "") {
    return (
      <p class="tool-error" dir="auto">
        <BacktickText text={plainOutput(text)} />
      </p>
    );
  }
  return <Output text={text} live={end === null} whole={whole} />;
}
