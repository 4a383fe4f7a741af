// Toolbar above the changes: scope, way to show them, steps, and the menu.

import { Icon, type IconName } from "../components/Icon";
import { Popover } from "../components/Popover";
import { downloadBlob } from "../dom/download";
import { WorkspaceIcon } from "../files/WorkspaceIcon";
import { isNarrow } from "../state/narrowScreen";
import type { ChangePlace } from "./changeKeys";
import { checkpointLabel, type ChangeScope } from "./changeScope";
import type { ChangesState } from "./changesState";
import { readPatch, type ChangeRange } from "./checkpointsRest";
import { isSideBySide, toggleSideBySide } from "./diffView";

interface ChangesBarProps {
  changes: ChangesState;
  readOnly: boolean;
  onStep: (place: ChangePlace, step: 1 | -1) => void;
}

export function ChangesBar({ changes, readOnly, onStep }: ChangesBarProps) {
  const items = changes.list.value?.items ?? [];
  const hasDiff = (changes.diff.value?.files.length ?? 0) > 0;
  return (
    <div class="file-toolbar">
      <select
        class="field"
        aria-label="Changes to show"
        value={changes.scope.value}
        onChange={(event) => changes.choose(event.currentTarget.value as ChangeScope)}
      >
        <option value="turn">This turn</option>
        <option value="seen">Since you last looked</option>
        <option value="all">Everything</option>
        {items.length > 0 && (
          <optgroup label="Up to a checkpoint">
            {items
              .filter(({ kind }) => kind !== "start")
              .reverse()
              .map((item) => (
                <option key={item.checkpoint} value={`at:${item.checkpoint}`}>
                  {checkpointLabel(items, item)}
                </option>
              ))}
          </optgroup>
        )}
      </select>
      <StepButton icon="send" label="Previous change (P)" disabled={!hasDiff} onClick={() => onStep("hunk", -1)} />
      <StepButton icon="down" label="Next change (N)" disabled={!hasDiff} onClick={() => onStep("hunk", 1)} />
      {!isNarrow.value && (
        <button
          type="button"
          class="icon-button"
          aria-label="Side by side"
          title="Side by side"
          aria-pressed={isSideBySide.value}
          onClick={toggleSideBySide}
        >
          <WorkspaceIcon name="columns" />
        </button>
      )}
      <Popover label="Actions for the changes" icon="more">
        {(close) => <Menu changes={changes} readOnly={readOnly} onChosen={close} />}
      </Popover>
    </div>
  );
}

interface StepButtonProps {
  icon: IconName;
  label: string;
  disabled: boolean;
  onClick: () => void;
}

function StepButton({ icon, label, disabled, onClick }: StepButtonProps) {
  return (
    <button type="button" class="icon-button" aria-label={label} title={label} disabled={disabled} onClick={onClick}>
      <Icon name={icon} />
    </button>
  );
}

function Menu({ changes, readOnly, onChosen }: { changes: ChangesState; readOnly: boolean; onChosen: () => void }) {
  const diff = changes.diff.value;
  const items = changes.list.value?.items ?? [];
  const newest = items.at(-1);
  const chosenThen = (act: () => void) => () => {
    onChosen();
    act();
  };
  const askRestore = () => {
    // The newest checkpoint would mostly change nothing.
    const isPast = diff && diff.to !== "now" && diff.to !== newest?.checkpoint;
    const checkpoint = isPast ? diff.to : (diff?.from ?? newest?.checkpoint);
    if (checkpoint !== undefined) changes.dialog.value = { target: "workspace", checkpoint };
  };
  return (
    <div>
      <button type="button" class="menu-entry" disabled={!diff} onClick={chosenThen(() => diff && void savePatch(changes, diff))}>
        Download the patch
      </button>
      {!readOnly && (
        <button type="button" class="menu-entry danger" disabled={!newest} onClick={chosenThen(askRestore)}>
          Restore the workspace…
        </button>
      )}
      <button type="button" class="menu-entry" onClick={chosenThen(() => void changes.load())}>
        Reload
      </button>
    </div>
  );
}

async function savePatch(changes: ChangesState, range: ChangeRange): Promise<void> {
  try {
    const patch = await readPatch(changes.session, range);
    downloadBlob(`${range.from}-${range.to}.patch`, patch);
    changes.problem.value = "";
  } catch (error) {
    changes.problem.value = (error as Error).message;
  }
}
