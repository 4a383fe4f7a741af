// Body of a tool call without a view of its own: places, changes and input.

import { genericCallOf, type FileChange, type GenericCall } from "../state/genericCall";
import type { ToolRow } from "../state/rows";
import { Diff } from "./Diff";
import { Lines } from "./Lines";

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
          <Lines label="Input" text={typeof call.input === "string" ? call.input : JSON.stringify(call.input, null, 2)} language="json" />
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
      {diff !== undefined && <Diff path={path} text={diff} />}
    </>
  );
}
