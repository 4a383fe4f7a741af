// Files of the workspace: tree, search, and the opened file beside them.

import { useEffect, useRef, useState } from "preact/hooks";
import { hasFiles } from "../components/DropZone";
import type { LiveSession } from "../state/liveSession";
import { droppedFiles } from "./droppedFiles";
import { FileDialog } from "./FileDialog";
import { FileSearchResults } from "./FileSearchResults";
import { FileToolbar } from "./FileToolbar";
import { FileTreeView } from "./FileTreeView";
import { FileViewer } from "./FileViewer";
import { filesOf } from "./filesState";
import { UploadStrip } from "./UploadStrip";
import { parentOf, WORKSPACE_ROOT, type WorkspacePath } from "./workspaceFiles";

export function FilesTab({ live }: { live: LiveSession }) {
  const files = filesOf(live.id);
  const [target, setTarget] = useState<WorkspacePath | null>(null);
  const pane = useRef<HTMLDivElement>(null);
  const readOnly = live.state.value.agentState === "ended";
  const opened = files.opened.value;
  const result = files.search.result.value;

  useEffect(() => files.follow(live), [files, live]);

  /** Returns the directory below the pointer. */
  const directoryAt = (event: DragEvent): WorkspacePath => {
    const key = (event.target as Element).closest<HTMLElement>("[data-key]")?.dataset.key;
    const row = files.tree.rows.peek().find((one) => one.key === key);
    if (row?.kind !== "entry") return WORKSPACE_ROOT;
    return row.entry.kind === "directory" ? row.entry : parentOf(row.entry);
  };

  return (
    <div
      class={opened ? "files opened" : "files"}
      ref={pane}
      onDragOver={(event) => {
        if (readOnly || !hasFiles(event)) return;
        event.preventDefault();
        setTarget(directoryAt(event));
      }}
      onDragLeave={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setTarget(null);
      }}
      onDrop={(event) => {
        setTarget(null);
        if (readOnly || !hasFiles(event) || !event.dataTransfer) return;
        event.preventDefault();
        const directory = directoryAt(event);
        void droppedFiles(event.dataTransfer).then((found) => files.uploads.add(directory, found));
      }}
    >
      <div class="file-side">
        <FileToolbar files={files} readOnly={readOnly} />
        {files.tree.isShared.value && <p class="file-note">All sessions share this workspace.</p>}
        {result ? (
          <FileSearchResults files={files} result={result} />
        ) : (
          <FileTreeView files={files} readOnly={readOnly} target={target} />
        )}
        {target && (
          <p class="file-note" role="status">
            Drop to upload to <b dir="auto">{target.path || "the workspace"}</b>
          </p>
        )}
        <UploadStrip uploads={files.uploads} />
      </div>
      {opened && <FileViewer key={opened.entry.path} files={files} file={opened} readOnly={readOnly} />}
      {files.dialog.value && <FileDialog files={files} request={files.dialog.value} />}
    </div>
  );
}
