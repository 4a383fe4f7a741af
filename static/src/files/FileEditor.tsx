// Text field of an edited file, and the answer to a conflict.

import { useLayoutEffect, useRef } from "preact/hooks";
import { ErrorNotice } from "../components/ErrorNotice";
import type { FileEdit, OpenedFile } from "./openedFile";

export function FileEditor({ file, edit }: { file: OpenedFile; edit: FileEdit }) {
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => field.current?.focus({ preventScroll: true }), []);

  const keyDown = (event: KeyboardEvent) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "s") {
      event.preventDefault();
      if (!event.repeat) void file.save();
    }
    // Escape interrupts the agent elsewhere on the page.
    if (event.key === "Escape") event.preventDefault();
  };

  return (
    <div class="file-editor">
      {edit.conflict && <ConflictNotice file={file} isDeleted={edit.conflict.etag === null} />}
      {edit.problem && <ErrorNotice text={edit.problem} />}
      <textarea
        ref={field}
        class="file-field"
        aria-label={`Text of ${file.entry.path}`}
        dir="ltr"
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        wrap="off"
        value={edit.text}
        onInput={(event) => file.type(event.currentTarget.value)}
        onKeyDown={keyDown}
      />
      <div class="file-edit-buttons">
        <button type="button" class="button" onClick={() => file.cancelEdit()}>
          Discard
        </button>
        <button type="button" class="button primary" disabled={edit.saving || edit.conflict !== null} onClick={() => void file.save()}>
          {edit.saving ? "Saving…" : "Save"}
        </button>
      </div>
    </div>
  );
}

function ConflictNotice({ file, isDeleted }: { file: OpenedFile; isDeleted: boolean }) {
  return (
    <div class="problem" role="alert">
      <span>{isDeleted ? "Deleted meanwhile" : "Changed meanwhile"}</span>
      {!isDeleted && (
        <button type="button" class="button" onClick={() => void file.loadTheirs()}>
          Load theirs
        </button>
      )}
      <button type="button" class="button" onClick={() => void file.overwrite()}>
        {isDeleted ? "Save as new" : "Overwrite"}
      </button>
      <button type="button" class="button" onClick={() => file.keepEditing()}>
        Keep editing
      </button>
    </div>
  );
}
