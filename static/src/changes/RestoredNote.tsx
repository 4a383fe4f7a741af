// Outcome of a restore, with the way back.

import { BacktickText } from "../components/BacktickText";
import { Icon } from "../components/Icon";
import { escapeInvisible } from "../escapes";
import { plural } from "../format";
import type { ChangesState } from "./changesState";
import type { RestoreResult } from "./checkpointsRest";

/** Paths that the note lists. */
const LISTED = 5;

export function RestoredNote({ changes, result }: { changes: ChangesState; result: RestoreResult }) {
  const { restored, removed, failed, before } = result;
  const paths = failed.slice(0, LISTED).map(({ path, reason }) => `\`${escapeInvisible(path)}\` (${reason})`);
  // The list has the checkpoint after its next reload.
  const isListed = changes.list.value?.items.some(({ checkpoint }) => checkpoint === before) === true;
  const others = failed.length - paths.length;
  return (
    <div class={failed.length > 0 ? "problem" : "restored-note"} role="status">
      <span>
        {plural(restored, "file")} restored, {removed.toLocaleString("en")} removed.
        {failed.length > 0 && <BacktickText text={` Not restored: ${[...paths, ...(others > 0 ? [plural(others, "other")] : [])].join(", ")}`} />}
      </span>
      <button type="button" class="button" disabled={!isListed} onClick={() => (changes.dialog.value = { target: "workspace", checkpoint: before })}>
        Take it back…
      </button>
      <button type="button" class="icon-button" aria-label="Close" title="Close" onClick={() => (changes.restored.value = null)}>
        <Icon name="cross" />
      </button>
    </div>
  );
}
