// Tool call without a view of its own: icon by kind, title, places, changes and input.

import { genericCallOf, type FileChange, type GenericCall } from "../state/genericCall";
import type { ToolRow } from "../state/rows";
import type { ToolKind } from "../wire/event";
import { Diff } from "./Diff";
import type { IconName } from "./Icon";
import { Lines } from "./Lines";

const KINDS: Record<ToolKind, { icon: IconName; label: string }> = {
  read: { icon: "file", label: "Read" },
  edit: { icon: "pencil", label: "Edit" },
  delete: { icon: "cross", label: "Delete" },
  move: { icon: "file", label: "Move" },
  search: { icon: "search", label: "Search" },
  execute: { icon: "terminal", label: "Run" },
  think: { icon: "info", label: "Think" },
  fetch: { icon: "globe", label: "Fetch" },
  switch_mode: { icon: "settings", label: "Switch mode" },
  other: { icon: "tool", label: "Tool" },
};

/** Icon and words of the line. An unknown kind looks like `other`. */
export function genericAppearance(row: ToolRow): { icon: IconName; verb: string; subject: string } {
  const { kind, title } = genericCallOf(row);
  const { icon, label } = Object.hasOwn(KINDS, kind) ? KINDS[kind as ToolKind] : KINDS.other;
  return { icon, verb: label, subject: title };
}

export function GenericToolBody({ row }: { row: ToolRow }) {
  const call = genericCallOf(row);
  return (
    <>
      <Places call={call} />
      {call.changes.map((change, index) => (
        <Change key={index} change={change} />
      ))}
      {call.input !== undefined && (
        <details class="raw">
          <summary>Input</summary>
          <Lines label="Input" text={typeof call.input === "string" ? call.input : JSON.stringify(call.input, null, 2)} />
        </details>
      )}
    </>
  );
}

/** Places that the changes do not name. */
function Places({ call }: { call: GenericCall }) {
  const changed = new Set(call.changes.map(({ path }) => path));
  const places = call.locations.filter(({ path }) => !changed.has(path));
  if (places.length === 0) return null;
  return (
    <ul class="tool-places">
      {places.map(({ path, line }, index) => (
        <li key={index}>
          <code>{line === undefined ? path : `${path}:${line}`}</code>
        </li>
      ))}
    </ul>
  );
}

function Change({ change: { path, change, diff, added, removed } }: { change: FileChange }) {
  return (
    <>
      <span class="tool-change">
        <code>{path}</code> {change}
        {added !== undefined && ` +${added}`}
        {removed !== undefined && ` −${removed}`}
      </span>
      {diff !== undefined && <Diff text={diff} />}
    </>
  );
}
