// Question before a restore: what goes back, and what happens to the work in progress.

import { useState } from "preact/hooks";
import { BacktickText } from "../components/BacktickText";
import { Dialog } from "../components/Dialog";
import { ErrorNotice } from "../components/ErrorNotice";
import { escapeInvisible } from "../escapes";
import type { LiveSession } from "../state/liveSession";
import { checkpointLabel, checkpointName, START } from "./changeScope";
import type { ChangesState, RestoreQuestion } from "./changesState";
import { restoreCheckpoint, type FileChangeRow, type RestoreResult } from "./checkpointsRest";
import { leftOutText } from "./leftOut";

interface RestoreDialogProps {
  live: LiveSession;
  changes: ChangesState;
  request: RestoreQuestion;
}

export function RestoreDialog({ live, changes, request }: RestoreDialogProps) {
  const items = changes.list.value?.items ?? [];
  const [chosen, setChosen] = useState(request.target === "workspace" ? request.checkpoint : request.from);
  const [problem, setProblem] = useState("");
  const [isRestoring, setIsRestoring] = useState(false);
  const isInTurn = live.state.value.turn !== null;
  const item = items.find(({ checkpoint }) => checkpoint === chosen);
  const close = () => (changes.dialog.value = null);

  const restore = async () => {
    setIsRestoring(true);
    setProblem("");
    try {
      changes.restored.value = await (request.target === "file" ? revertFile(changes.session, request.from, request.file) : restoreCheckpoint(changes.session, chosen));
      close();
      void changes.load();
    } catch (error) {
      setProblem((error as Error).message);
      setIsRestoring(false);
    }
  };

  const name = checkpointName(items, chosen);
  return (
    <Dialog title={request.target === "file" ? "Revert this file?" : "Restore the workspace?"} onClose={close}>
      {request.target === "file" ? (
        <p>
          <BacktickText text={revertText(request.file, name)} />
        </p>
      ) : (
        <>
          <label class="file-path-label">
            Go back to
            <select class="field" value={chosen} onChange={(event) => setChosen(event.currentTarget.value)}>
              {[...items].reverse().map((one) => (
                <option key={one.checkpoint} value={one.checkpoint}>
                  {checkpointLabel(items, one)}
                </option>
              ))}
              {!items.some(({ kind }) => kind === "start") && <option value={START}>Start (empty)</option>}
            </select>
          </label>
          <p>All captured files go back. Later files are removed.</p>
          <p class="muted">Queued messages wait. Programs that still run may write again.</p>
        </>
      )}
      <p class="muted">The present state is kept as a checkpoint.</p>
      {item?.partial && <p class="restore-warning">This checkpoint is partial: it may hold later changes.</p>}
      {request.target === "workspace" && item && (item.left_out.length > 0 || item.left_out_more > 0) && (
        <p class="muted" dir="auto">
          <BacktickText text={`${leftOutText(item.left_out, item.left_out_more)}. These stay as they are.`} />
        </p>
      )}
      {isInTurn && <p class="restore-warning">The agent is working. Interrupt it, or wait.</p>}
      {problem && <ErrorNotice text={problem} />}
      <div class="dialog-buttons">
        <button type="button" class="button" autofocus onClick={close}>
          Cancel
        </button>
        <button type="button" class="button danger" disabled={isInTurn || isRestoring} onClick={() => void restore()}>
          {isRestoring ? "Restoring…" : request.target === "file" ? "Revert" : "Restore"}
        </button>
      </div>
    </Dialog>
  );
}

function revertText({ path, change, from }: FileChangeRow, name: string): string {
  const file = `\`${escapeInvisible(path)}\``;
  if (change === "created") return `${file} is deleted. It did not exist at: ${name}.`;
  if (change === "moved") return `${file} becomes \`${escapeInvisible(from ?? "")}\` again, as at: ${name}.`;
  return `${file} goes back to its content at: ${name}. Later changes to it are undone.`;
}

/** Reverts a file. A moved one comes back at its old path first, then leaves the new one. */
async function revertFile(session: string, checkpoint: string, file: FileChangeRow): Promise<RestoreResult> {
  if (file.from === null) return restoreCheckpoint(session, checkpoint, file);
  const first = await restoreCheckpoint(session, checkpoint, { path: file.from, encoded: file.from_encoded });
  if (first.failed.length > 0) return first;
  const second = await restoreCheckpoint(session, checkpoint, file);
  return { ...second, before: first.before, restored: first.restored + second.restored, removed: first.removed + second.removed };
}
