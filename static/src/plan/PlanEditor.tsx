// Markdown of the plan in a text field, with the conflicts of the Files tab.

import { useEffect, useRef } from "preact/hooks";
import { ErrorNotice } from "../components/ErrorNotice";
import { pageSkeleton } from "../components/lazy";
import { FileEditor } from "../files/FileEditor";
import type { OpenedFile } from "../files/openedFile";

interface PlanEditorProps {
  file: OpenedFile;
  /** Called after the edit was saved or discarded. */
  onDone: () => void;
}

export function PlanEditor({ file, onDone }: PlanEditorProps) {
  const view = file.view.value;
  const edit = file.edit.value;
  const hasBegun = useRef(false);
  const canBegin = file.isEditable;

  useEffect(() => {
    if (edit) hasBegun.current = true;
    else if (hasBegun.current) onDone();
    else if (canBegin) file.startEdit();
  }, [file, edit, canBegin]);

  if (edit) return <FileEditor file={file} edit={edit} />;
  if (view.kind === "loading" || canBegin) return pageSkeleton;
  const text = view.kind === "failed" ? view.text : "The plan cannot be edited here.";
  return (
    <div class="plan-failed">
      <ErrorNotice text={text} onRetry={() => void file.load()} />
      <button type="button" class="button" onClick={onDone}>
        Back
      </button>
    </div>
  );
}
