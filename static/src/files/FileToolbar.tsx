// Toolbar above the tree: search, new entries, upload, and the actions for the selected entry.

import { useRef, useState } from "preact/hooks";
import { Popover } from "../components/Popover";
import { FileActions } from "./FileActions";
import type { FilesState } from "./filesState";
import { WorkspaceIcon, type WorkspaceIconName } from "./WorkspaceIcon";

export function FileToolbar({ files, readOnly }: { files: FilesState; readOnly: boolean }) {
  const [text, setText] = useState(files.search.result.value?.text ?? "");
  const chooser = useRef<HTMLInputElement>(null);
  const type = (next: string) => {
    setText(next);
    files.search.type(next);
  };
  const create = (action: "new_file" | "new_folder") => (files.dialog.value = { action, directory: files.activeDirectory() });
  return (
    <div class="file-toolbar">
      <input
        type="search"
        class="field"
        aria-label="Search files by name"
        placeholder="Name or *.glob"
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        value={text}
        onInput={(event) => type(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Escape" && text !== "" && (event.preventDefault(), type(""))}
      />
      {!readOnly && (
        <>
          <ToolButton icon="new_file" label="New file" onClick={() => create("new_file")} />
          <ToolButton icon="new_folder" label="New folder" onClick={() => create("new_folder")} />
          <ToolButton icon="upload" label="Upload files" onClick={() => chooser.current?.click()} />
          <input
            ref={chooser}
            type="file"
            multiple
            hidden
            aria-label="Files to upload"
            onChange={({ currentTarget }) => {
              const chosen = [...(currentTarget.files ?? [])].map((file) => ({ file, path: file.name }));
              currentTarget.value = "";
              void files.uploads.add(files.activeDirectory(), chosen);
            }}
          />
        </>
      )}
      <Popover label="Actions for the selected entry" icon="more">
        {(close) => <FileActions files={files} readOnly={readOnly} onChosen={close} />}
      </Popover>
    </div>
  );
}

function ToolButton({ icon, label, onClick }: { icon: WorkspaceIconName; label: string; onClick: () => void }) {
  return (
    <button type="button" class="icon-button" aria-label={label} title={label} onClick={onClick}>
      <WorkspaceIcon name={icon} />
    </button>
  );
}
