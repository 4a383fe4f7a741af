// Files that a turn changed, below its end. A press opens them in the Changes tab.

import { BacktickText } from "../components/BacktickText";
import { FileName } from "../files/FileName";
import { plural } from "../format";
import { currentLive } from "../state/currentSession";
import type { TurnRow } from "../state/rows";
import { CHANGE_NAMES, ChangeCounts } from "./ChangeCounts";
import { leftOutText } from "./leftOut";
import { openChanges } from "./openChanges";

/** Files that a card lists. */
const LISTED = 5;

export function TurnChanges({ row: { checkpoint, changes } }: { row: TurnRow }) {
  const { left_out: leftOut = [], left_out_more: leftOutMore = 0, partial = false } = checkpoint ?? {};
  const files = changes?.files ?? [];
  const others = files.length - Math.min(files.length, LISTED) + (changes?.more ?? 0);
  return (
    <>
      {changes && (
        <div class="turn-changes">
          <OpenButton checkpoint={changes.checkpoint}>
            {plural(files.length + (changes.more ?? 0), "changed file")} <ChangeCounts added={changes.added} removed={changes.removed} />
          </OpenButton>
          <ul>
            {files.slice(0, LISTED).map(({ path, encoded = false, change, added, removed }) => (
              <li key={`${change} ${path}`}>
                <FileName name={path} encoded={encoded} />
                {CHANGE_NAMES[change] && <span>{CHANGE_NAMES[change]}</span>}
                <ChangeCounts added={added} removed={removed} />
              </li>
            ))}
            {others > 0 && <li>{plural(others, "other")}</li>}
          </ul>
        </div>
      )}
      {(leftOut.length > 0 || leftOutMore > 0 || partial) && (
        <p class="turn-left-out" dir="auto">
          {partial && "The capture took long and may be incomplete. "}
          {(leftOut.length > 0 || leftOutMore > 0) && <BacktickText text={leftOutText(leftOut, leftOutMore)} />}
        </p>
      )}
    </>
  );
}

/** Button of a live session. A recording has no workspace. */
function OpenButton({ checkpoint, children }: { checkpoint: string; children: preact.ComponentChildren }) {
  if (!currentLive.value) return <span>{children}</span>;
  return (
    <button type="button" class="link" title="Show these changes" onClick={() => openChanges(checkpoint)}>
      {children}
    </button>
  );
}
