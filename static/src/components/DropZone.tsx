// Files may be dropped anywhere on a page that takes them.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

interface Props {
  hint: string;
  /** `null`: it takes none now. */
  onFiles: ((files: readonly File[]) => void) | null;
  children: ComponentChildren;
}

/** Whether files are dragged, and not a text or a link. */
export const isFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") === true;

export function DropZone({ hint, onFiles, children }: Props) {
  const [over, setOver] = useState(false);
  const [folder, setFolder] = useState<string | null>(null);

  return (
    <div
      class="drop-zone"
      onDragOver={(event) => {
        if (!onFiles || !isFiles(event)) return;
        event.preventDefault();
        setOver(true);
        setFolder(null);
      }}
      onDragLeave={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setOver(false);
      }}
      onDrop={(event) => {
        setOver(false);
        if (!onFiles || !isFiles(event)) return;
        event.preventDefault();
        const items = [...(event.dataTransfer?.items ?? [])];
        const entries = items.map((item) => item.webkitGetAsEntry());
        // A folder comes as a file, too: one that cannot be read.
        const files = items.flatMap((item, n) => (entries[n]?.isDirectory ? [] : (item.getAsFile() ?? [])));
        setFolder(entries.find((entry) => entry?.isDirectory)?.name ?? null);
        if (files.length > 0) onFiles(files);
      }}
    >
      {children}
      {over && onFiles && <div class="drop-hint">{hint}</div>}
      {folder !== null && (
        <div class="problem drop-problem" role="alert">
          <span>“{folder}” is a folder, and only files can be taken. Drop those that are in it.</span>
          <button type="button" class="button" onClick={() => setFolder(null)}>
            Dismiss
          </button>
        </div>
      )}
    </div>
  );
}
