// Consecutive reads: one line that opens to the list. A single read is shown as itself.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { plural } from "../format";
import type { ReadGroup } from "../state/readGroups";
import { appearanceOf } from "../state/toolAppearance";
import { Icon } from "./Icon";
import { RunningMark } from "./RunningTime";
import { ToolCall } from "./ToolCall";

export function Reads({ group: { rows } }: { group: ReadGroup }) {
  const [open, setOpen] = useState(false);
  const isSingle = rows.length === 1;
  const files = new Set(rows.map((row) => appearanceOf(row).subject)).size;
  const failed = rows.filter(({ end }) => end?.outcome === "failed").length;
  const isRunning = rows.some(({ end }) => end === null);
  const root = useRef<HTMLDivElement>(null);
  const hadFocus = root.current?.contains(document.activeElement) === true;
  // A second read replaces the line of a single one, which may have the focus.
  useLayoutEffect(() => {
    if (hadFocus && !root.current?.contains(document.activeElement)) root.current?.querySelector("button")?.focus();
  }, [isSingle]);
  return (
    <div class="reads" ref={root}>
      {!isSingle && (
        <div class="row tool">
          <button type="button" class="tool-line" aria-expanded={open} onClick={() => setOpen(!open)}>
            <Icon name="file" />
            <span class="tool-verb">
              {isRunning ? "Reading" : "Read"} {plural(files, "file")}
            </span>
            <span class="tool-facts">
              {failed > 0 && <span class="outcome">{failed} failed</span>}
              {isRunning && <RunningMark />}
            </span>
            <Icon name="chevron" />
          </button>
        </div>
      )}
      {(isSingle || open) && (
        <div class={isSingle ? undefined : "reads-list"}>
          {/* An opened read stays open when further reads join it. */}
          {rows.map((row) => (
            <ToolCall key={row.key} row={row} onToggle={isSingle ? setOpen : undefined} />
          ))}
        </div>
      )}
    </div>
  );
}
