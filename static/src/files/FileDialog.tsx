// Dialogs of the Files tab: new file, new folder, rename or move, delete.

import { useState } from "preact/hooks";
import { Dialog } from "../components/Dialog";
import { ErrorNotice } from "../components/ErrorNotice";
import { isComposing } from "../dom/ime";
import { escapeInvisible } from "../escapes";
import { pathProblem } from "./entryName";
import type { FileDialogRequest, FilesState } from "./filesState";
import { childOf, deleteFile, keyOfPath, makeDirectory, moveFile, saveText, type FileEntry, type WorkspacePath } from "./workspaceFiles";

export function FileDialog({ files, request }: { files: FilesState; request: FileDialogRequest }) {
  const [problem, setProblem] = useState("");
  const { session, tree } = files;
  const close = () => (files.dialog.value = null);

  const act = async (work: () => Promise<unknown>, created?: WorkspacePath) => {
    try {
      await work();
      close();
      await tree.refresh();
      if (!created) return;
      await tree.reveal(created);
      const row = tree.rows.peek().find(({ key }) => key === keyOfPath(created));
      if (row?.kind === "entry" && row.entry.kind === "file") files.show(row.entry);
    } catch (error) {
      setProblem((error as Error).message);
    }
  };

  switch (request.action) {
    case "new_file":
    case "new_folder": {
      const isFile = request.action === "new_file";
      const create = (name: string) => {
        const path = name.split("/").reduce(childOf, request.directory);
        void act(() => (isFile ? saveText(session, path, "", null) : makeDirectory(session, path)), path);
      };
      const place = request.directory.path === "" ? "the workspace" : `\`${request.directory.path}\``;
      return <PathDialog title={isFile ? "New file" : "New folder"} label={`Name in ${place}`} verb="Create" initial="" problem={problem} onClose={close} onPath={create} />;
    }
    case "move": {
      const { entry } = request;
      const move = (path: string) => {
        const to = { path, encoded: entry.encoded };
        void act(async () => {
          await moveFile(session, entry, to);
          const opened = files.opened.peek();
          if (opened && keyOfPath(opened.entry) === keyOfPath(entry)) {
            opened.movedTo(to);
            files.closeFile();
          }
        }, to);
      };
      const label = entry.encoded ? "New path, percent-encoded" : "New path in the workspace";
      return <PathDialog title="Rename or move" label={label} verb="Move" initial={entry.path} problem={problem} onClose={close} onPath={move} />;
    }
    case "delete":
      return <DeleteDialog entry={request.entry} problem={problem} onClose={close} onDelete={() => void act(() => remove(files, request.entry))} />;
  }
}

async function remove(files: FilesState, entry: FileEntry): Promise<void> {
  await deleteFile(files.session, entry);
  const opened = files.opened.peek()?.entry.path;
  if (opened === entry.path || opened?.startsWith(`${entry.path}/`)) files.closeFile();
}

interface PathDialogProps {
  title: string;
  label: string;
  verb: string;
  initial: string;
  problem: string;
  onClose: () => void;
  onPath: (path: string) => void;
}

function PathDialog({ title, label, verb, initial, problem, onClose, onPath }: PathDialogProps) {
  const [path, setPath] = useState(initial);
  const wrong = pathProblem(path);
  const canSubmit = path !== "" && path !== initial && wrong === "";
  return (
    <Dialog title={title} onClose={onClose}>
      <label class="file-path-label">
        {label}
        <input
          class="field"
          dir="auto"
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          autofocus
          value={path}
          onInput={(event) => setPath(event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Enter" && !isComposing(event) && canSubmit && onPath(path)}
        />
      </label>
      {(problem || wrong) && <ErrorNotice text={problem || wrong} />}
      <div class="dialog-buttons">
        <button type="button" class="button" onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="button primary" disabled={!canSubmit} onClick={() => onPath(path)}>
          {verb}
        </button>
      </div>
    </Dialog>
  );
}

interface DeleteDialogProps {
  entry: FileEntry;
  problem: string;
  onClose: () => void;
  onDelete: () => void;
}

function DeleteDialog({ entry, problem, onClose, onDelete }: DeleteDialogProps) {
  const isDirectory = entry.kind === "directory";
  return (
    <Dialog title={isDirectory ? "Delete this folder?" : "Delete this file?"} onClose={onClose}>
      <p>
        <code dir="auto">{escapeInvisible(entry.path)}</code> is deleted{isDirectory ? " with all of its content" : ""}. This cannot be undone.
      </p>
      {problem && <ErrorNotice text={problem} />}
      <div class="dialog-buttons">
        <button type="button" class="button" autofocus onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="button danger" onClick={onDelete}>
          Delete
        </button>
      </div>
    </Dialog>
  );
}
