// Menu of the selected entry: download, rename, delete. Without a selection, of the workspace.

import { downloadUrl } from "../dom/download";
import { escapeInvisible } from "../escapes";
import type { FilesState } from "./filesState";
import { addressOfFile, archiveAddress, WORKSPACE_ROOT, type FileEntry } from "./workspaceFiles";

interface FileActionsProps {
  files: FilesState;
  readOnly: boolean;
  onChosen: () => void;
}

export function FileActions({ files, readOnly, onChosen }: FileActionsProps) {
  const row = files.tree.rows.value.find(({ key }) => key === files.tree.active.value);
  const entry = row?.kind === "entry" ? row.entry : undefined;
  const entryDo = (act: () => void) => () => {
    onChosen();
    act();
  };
  return (
    <div>
      {entry && <p class="menu-note muted">{escapeInvisible(entry.path)}</p>}
      {entry?.kind === "file" && <MenuItem text="Download" onClick={entryDo(() => void downloadUrl(downloadAddress(files.session, entry)))} />}
      {entry?.kind === "directory" && <MenuItem text="Download folder" onClick={entryDo(() => void downloadUrl(archiveAddress(files.session, entry)))} />}
      {entry && !readOnly && <MenuItem text="Rename or move…" onClick={entryDo(() => (files.dialog.value = { action: "move", entry }))} />}
      {entry && !readOnly && <MenuItem text="Delete…" danger onClick={entryDo(() => (files.dialog.value = { action: "delete", entry }))} />}
      <MenuItem text="Download the workspace" onClick={entryDo(() => void downloadUrl(archiveAddress(files.session, WORKSPACE_ROOT)))} />
      <MenuItem text="Reload" onClick={entryDo(() => void files.tree.refresh())} />
    </div>
  );
}

/** Returns the address that a browser saves, whatever the file's type. */
export const downloadAddress = (session: string, entry: FileEntry): string => addressOfFile(session, entry, { download: "true" });

function MenuItem({ text, danger, onClick }: { text: string; danger?: boolean; onClick: () => void }) {
  return (
    <button type="button" class={danger ? "menu-entry danger" : "menu-entry"} onClick={onClick}>
      {text}
    </button>
  );
}
