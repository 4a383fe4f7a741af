// Diffs of the changed files, one below the other.

import { BacktickText } from "../components/BacktickText";
import { plural } from "../format";
import { ChangeSection } from "./ChangeSection";
import { checkpointName } from "./changeScope";
import { FILES_AT_ONCE, foldKey, type ChangesState } from "./changesState";
import type { ChangeSet, CheckpointEntry } from "./checkpointsRest";
import { changedLines } from "./diffRows";
import { leftOutText } from "./leftOut";

/** Longest diff of a file that is open at first, in changed lines. */
const OPEN_LINES = 400;
/** Limit of all diffs that are open at first, in changed lines. */
const OPEN_LINES_IN_ALL = 2000;
/** Cost of an open diff beside its lines, in lines. Many small diffs take time as well. */
const OPEN_COST = 10;

interface DifferencesProps {
  changes: ChangesState;
  items: readonly CheckpointEntry[];
  diff: ChangeSet;
  readOnly: boolean;
}

export function Differences({ changes, items, diff, readOnly }: DifferencesProps) {
  const partial = items.filter(({ checkpoint, partial }) => partial && (checkpoint === diff.from || checkpoint === diff.to));
  const shown = changes.shownFiles.value;
  const hidden = diff.files.length - shown;
  let open = 0;
  return (
    <div class="changes-diffs" tabIndex={0} role="region" aria-label="Differences">
      {partial.map(({ checkpoint }) => (
        <p key={checkpoint} class="file-note">
          {checkpointName(items, checkpoint)} is partial: it may hold later changes.
        </p>
      ))}
      {diff.files.slice(0, shown).map((file) => {
        const cost = changedLines(file) + OPEN_COST;
        const opensAtFirst = cost <= OPEN_LINES + OPEN_COST && open + cost <= OPEN_LINES_IN_ALL && !file.truncated;
        // A long diff that stays closed leaves the room to others.
        if (opensAtFirst) open += cost;
        return <ChangeSection key={foldKey(file)} changes={changes} file={file} isOpen={changes.folds.value.get(foldKey(file)) ?? opensAtFirst} readOnly={readOnly} />;
      })}
      {hidden > 0 && (
        <p class="change-more">
          <button type="button" class="button" onClick={() => (changes.shownFiles.value = shown + FILES_AT_ONCE)}>
            Show {Math.min(FILES_AT_ONCE, hidden)} more of {plural(hidden, "file")}
          </button>
        </p>
      )}
      {diff.more > 0 && <p class="file-note">{plural(diff.more, "further file")}: download the patch to see all.</p>}
      {(diff.left_out.length > 0 || diff.left_out_more > 0) && (
        <p class="file-note" dir="auto">
          <BacktickText text={leftOutText(diff.left_out, diff.left_out_more)} />
        </p>
      )}
    </div>
  );
}
