// Changed file: its title with counts and the way back, and its diff.

import { useState } from "preact/hooks";
import { Icon } from "../components/Icon";
import { escapeInvisible } from "../escapes";
import { FileName } from "../files/FileName";
import { WorkspaceIcon } from "../files/WorkspaceIcon";
import { bytes, plural } from "../format";
import { CHANGE_NAMES, ChangeCounts } from "./ChangeCounts";
import { foldKey, type ChangesState } from "./changesState";
import type { FileChangeRow } from "./checkpointsRest";
import { DiffLines } from "./DiffLines";

interface ChangeSectionProps {
  changes: ChangesState;
  file: FileChangeRow;
  isOpen: boolean;
  readOnly: boolean;
}

export function ChangeSection({ changes, file, isOpen, readOnly }: ChangeSectionProps) {
  const from = changes.diff.value?.from;
  const revert = `Revert ${escapeInvisible(file.path)}`;
  return (
    <section class="change" aria-label={escapeInvisible(file.path)}>
      <div class="change-header">
        <button
          type="button"
          class="change-title"
          data-key={foldKey(file)}
          aria-expanded={isOpen}
          onClick={() => changes.fold(file, !isOpen)}
        >
          <span class={isOpen ? "file-twist open" : "file-twist"}>
            <Icon name="chevron" />
          </span>
          <FileName name={file.path} encoded={file.encoded} />
          {CHANGE_NAMES[file.change] && <span class="badge">{CHANGE_NAMES[file.change]}</span>}
          {modeNote(file) && <span class="badge">{modeNote(file)}</span>}
          <ChangeCounts added={file.added} removed={file.removed} />
        </button>
        {!readOnly && from !== undefined && (
          <button
            type="button"
            class="icon-button"
            aria-label={revert}
            title={revert}
            onClick={() => (changes.dialog.value = { target: "file", file, from })}
          >
            <WorkspaceIcon name="undo" />
          </button>
        )}
      </div>
      {file.from !== null && (
        <p class="file-note">
          Renamed from <FileName name={file.from} encoded={file.from_encoded} />
        </p>
      )}
      {isOpen && <ChangeBody changes={changes} file={file} readOnly={readOnly} />}
    </section>
  );
}

function ChangeBody({ changes, file, readOnly }: Omit<ChangeSectionProps, "isOpen">) {
  const [isLoading, setIsLoading] = useState(false);
  if (file.truncated) {
    const load = async () => {
      setIsLoading(true);
      await changes.loadFile(file);
      setIsLoading(false);
    };
    return (
      <p class="change-more">
        <button type="button" class="button" disabled={isLoading} onClick={() => void load()}>
          {isLoading ? "Loading…" : `Show ${plural((file.added ?? 0) + (file.removed ?? 0), "changed line")}`}
        </button>
      </p>
    );
  }
  if (file.binary) return <p class="file-note">Binary: {sizes(file)}</p>;
  if (!file.diff) return <p class="file-note">{file.change === "moved" ? "The content is the same." : "No line differs."}</p>;
  return <DiffLines changes={changes} file={file} diff={file.diff} readOnly={readOnly} />;
}

function sizes({ old_bytes, new_bytes }: FileChangeRow): string {
  const texts = [old_bytes, new_bytes].flatMap((size) => (size === null ? [] : [bytes(size)]));
  return texts.join(" → ");
}

/** Returns the words for a link and for a changed mode. Empty for a plain file. */
function modeNote({ old_mode, new_mode }: FileChangeRow): string {
  if ((new_mode ?? old_mode) === "120000") return "link";
  if (old_mode === null || new_mode === null || old_mode === new_mode) return "";
  return new_mode === "100755" ? "now executable" : "no longer executable";
}
