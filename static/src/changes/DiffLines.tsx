// Lines of a diff as a table, inline or side by side, with comments below their lines.

import { Fragment } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { flatPieces, type ColouredPiece } from "../files/colouredLines";
import { languageOfFile } from "../files/languageOfFile";
import { plural } from "../format";
import { isNarrow } from "../state/narrowScreen";
import type { NumberedDiffLine } from "../state/codeText";
import type { ChangesState } from "./changesState";
import type { FileChangeRow } from "./checkpointsRest";
import { diffTable, type DiffCell, type DiffSide, type DiffTableRow } from "./diffRows";
import { isSideBySide } from "./diffView";
import { LineNotes } from "./LineNotes";
import { keyOfLine, type CommentedLine } from "./lineComments";

/** Rows that one press adds. More at once would block the page. */
const ROWS = 1000;
/** Longest line that is shown whole, in characters. */
const LONGEST_LINE = 5000;

interface DiffLinesProps {
  changes: ChangesState;
  file: FileChangeRow;
  diff: string;
  readOnly: boolean;
}

export function DiffLines({ changes, file, diff, readOnly }: DiffLinesProps) {
  const table = useMemo(() => diffTable(diff), [diff]);
  const colours = useColours(table.lines, file.path);
  const [shown, setShown] = useState(ROWS);
  const [active, setActive] = useState(0);
  const isSplit = isSideBySide.value && !isNarrow.value;
  const columns = isSplit ? 4 : 3;
  const rows = isSplit ? table.sideBySide : table.inline;
  const commented = new Set([...changes.comments.all.value, ...(changes.comments.written.value ? [changes.comments.written.value] : [])].map(keyOfLine));

  const lineOf = (row: DiffTableRow | undefined, side: DiffSide): CommentedLine | null => {
    const cell = row?.kind === "line" ? row[side] : null;
    return cell?.number == null ? null : { file: { path: file.path, encoded: file.encoded }, side, line: cell.number, code: cell.text };
  };
  const comment = (row: DiffTableRow | undefined, side: DiffSide) => {
    const line = lineOf(row, side) ?? lineOf(row, "new") ?? lineOf(row, "old");
    if (line && !readOnly) changes.comments.written.value = line;
  };
  const rowAt = (target: EventTarget | null) => Number((target as Element).closest<HTMLElement>("tr[data-row]")?.dataset.row ?? -1);
  const firstLine = Math.max(active, rows.findIndex(({ kind }) => kind === "line"));

  return (
    <>
      <table key={isSplit ? "split" : "inline"} class={isSplit ? "diff-table two-sided" : "diff-table"} aria-label="Diff">
        <colgroup>
          <col class="number" />
          {isSplit && <col />}
          <col class="number" />
          <col />
        </colgroup>
        <tbody
          onClick={(event) => {
            const number = (event.target as Element).closest<HTMLElement>(".diff-number");
            if (number) comment(rows[rowAt(number)], number.dataset.side as DiffSide);
          }}
          onFocusIn={(event) => rowAt(event.target) >= 0 && setActive(rowAt(event.target))}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || !(event.target as Element).matches("tr")) return;
            event.preventDefault();
            comment(rows[rowAt(event.target)], "new");
          }}
        >
          {rows.slice(0, shown).map((row, n) => (
            <Fragment key={n}>
              <DiffRow row={row} at={n} isSplit={isSplit} colours={colours} tabIndex={n === firstLine ? 0 : -1} />
              {(["old", "new"] as const).map((side) => {
                const line = lineOf(row, side);
                // Inline, a line that both sides share shows its notes once for each side.
                return line && commented.has(keyOfLine(line)) && <LineNotes key={side} comments={changes.comments} line={line} columns={columns} />;
              })}
            </Fragment>
          ))}
        </tbody>
      </table>
      {rows.length > shown && (
        <p class="change-more">
          <button type="button" class="button" onClick={() => setShown(shown + ROWS)}>
            Show {Math.min(ROWS, rows.length - shown).toLocaleString("en")} more of {plural(rows.length - shown, "line")}
          </button>
        </p>
      )}
    </>
  );
}

type LineColours = ReadonlyMap<number, readonly ColouredPiece[]>;

interface DiffRowProps {
  row: DiffTableRow;
  at: number;
  isSplit: boolean;
  colours: LineColours;
  tabIndex: number;
}

function DiffRow({ row, at, isSplit, colours, tabIndex }: DiffRowProps) {
  if (row.kind === "place") {
    return (
      <tr class={row.isHunk ? "diff-place hunk" : "diff-place"} tabIndex={-1} data-row={at}>
        <td colSpan={isSplit ? 4 : 3}>{row.text}</td>
      </tr>
    );
  }
  if (isSplit) {
    return (
      <tr tabIndex={tabIndex} data-row={at}>
        <NumberCell cell={row.old} side="old" />
        <CodeCell cell={row.old} colours={colours} />
        <NumberCell cell={row.new} side="new" />
        <CodeCell cell={row.new} colours={colours} />
      </tr>
    );
  }
  return (
    <tr tabIndex={tabIndex} data-row={at}>
      <NumberCell cell={row.old} side="old" />
      <NumberCell cell={row.new} side="new" />
      <CodeCell cell={row.new ?? row.old} colours={colours} />
    </tr>
  );
}

function NumberCell({ cell, side }: { cell: DiffCell | null; side: DiffSide }) {
  return (
    <td class={`diff-number ${cell?.kind ?? "none"}`} data-side={side} title={cell ? "Comment on this line" : undefined}>
      {cell?.number}
    </td>
  );
}

const SIGNS: Record<DiffCell["kind"], string> = { added: "+", removed: "−", same: " " };

function CodeCell({ cell, colours }: { cell: DiffCell | null; colours: LineColours }) {
  if (!cell) return <td class="diff-code none" />;
  const isLong = cell.text.length > LONGEST_LINE;
  const pieces = isLong ? undefined : colours.get(cell.at);
  return (
    <td class={`diff-code ${cell.kind}`} dir="ltr">
      <span class="diff-sign">{SIGNS[cell.kind]}</span>
      {pieces ? pieces.map(({ text, className }, n) => (className ? <span key={n} class={className}>{text}</span> : text)) : cell.text.slice(0, LONGEST_LINE)}
      {isLong && <span class="badge">{(cell.text.length - LONGEST_LINE).toLocaleString("en")} more characters</span>}
    </td>
  );
}

/** Returns the code colours by line, once the highlighter is there. */
function useColours(lines: readonly NumberedDiffLine[], path: string): LineColours {
  const [coloured, setColoured] = useState<{ lines: unknown; colours: LineColours } | null>(null);
  useEffect(() => {
    let isCurrent = true;
    // Without the highlighter, code stays plain.
    void import("../markdown/highlight").then(
      ({ highlightLines }) => {
        if (!isCurrent) return;
        const colours = new Map<number, readonly ColouredPiece[]>();
        // Each side is a text of its own. The new one colours the lines that both share.
        for (const hidden of ["added", "removed"] as const) {
          const side = [...lines.entries()].filter(([, line]) => line.sign !== undefined && line.kind !== hidden);
          const pieces = highlightLines(side.map(([, { text }]) => text), languageOfFile(path));
          side.forEach(([at], n) => colours.set(at, flatPieces(pieces[n]!)));
        }
        setColoured({ lines, colours });
      },
      () => {},
    );
    return () => void (isCurrent = false);
  }, [lines, path]);
  return coloured?.lines === lines ? coloured.colours : NO_COLOURS;
}

const NO_COLOURS: LineColours = new Map();
