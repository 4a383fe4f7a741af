// List of the changed files. A press goes to the diff of a file.

import { FileName } from "../files/FileName";
import { plural } from "../format";
import { isNarrow } from "../state/narrowScreen";
import { CHANGE_NAMES, ChangeCounts } from "./ChangeCounts";
import { foldKey, type ChangesState } from "./changesState";
import type { ChangeSet, FileChangeRow } from "./checkpointsRest";

export function ChangedFileList({ changes, diff }: { changes: ChangesState; diff: ChangeSet }) {
  const count = diff.files.length + diff.more;
  return (
    <details class="changed-files" open={!isNarrow.value}>
      <summary>
        {plural(count, "changed file")} <ChangeCounts added={diff.added} removed={diff.removed} />
      </summary>
      <ul>
        {diff.files.map((file) => (
          <li key={foldKey(file)}>
            <button type="button" class={`file-row ${file.change}`} onClick={() => goTo(changes, file)}>
              <FileName name={file.path} encoded={file.encoded} />
              {CHANGE_NAMES[file.change] && <span class="badge">{CHANGE_NAMES[file.change]}</span>}
              <ChangeCounts added={file.added} removed={file.removed} />
            </button>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** Opens the diff of a file and focuses its title. */
function goTo(changes: ChangesState, file: FileChangeRow): void {
  const at = changes.diff.peek()?.files.indexOf(file) ?? -1;
  if (at >= changes.shownFiles.peek()) changes.shownFiles.value = at + 1;
  if (!file.truncated && file.diff !== null) changes.fold(file, true);
  // A file beyond the shown ones is drawn first.
  setTimeout(() => {
    const title = [...document.querySelectorAll<HTMLElement>(".change-title")].find(({ dataset }) => dataset.key === foldKey(file));
    title?.focus({ preventScroll: true });
    title?.scrollIntoView?.({ block: "start" });
  });
}
