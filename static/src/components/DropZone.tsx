// Page area that accepts dropped files.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

interface DropZoneProps {
  hint: string;
  /** `null`: accepts no files now. */
  onFiles: ((files: readonly File[]) => void) | null;
  children: ComponentChildren;
}

/** Detects dragged files, as opposed to a text or a link. */
export const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") === true;

export function DropZone({ hint, onFiles, children }: DropZoneProps) {
  const [over, setOver] = useState(false);
  const [folder, setFolder] = useState<string | null>(null);

  return (
    <div
      class="drop-zone"
      onDragOver={(event) => {
        // An area inside of this one has taken the files.
        if (event.defaultPrevented) return setOver(false);
        if (!onFiles || !hasFiles(event)) return;
        event.preventDefault();
        setOver(true);
        setFolder(null);
      }}
      onDragLeave={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setOver(false);
      }}
      onDrop={(event) => {
        setOver(false);
        if (!onFiles || !hasFiles(event) || event.defaultPrevented) return;
        event.preventDefault();
        const items = [...(event.dataTransfer?.items ?? [])];
        const entries = items.map((item) => item.webkitGetAsEntry());
        // A dropped folder also appears as an unreadable file.
        const files = items.flatMap((item, n) => (entries[n]?.isDirectory ? [] : (item.getAsFile() ?? [])));
        setFolder(entries.find((entry) => entry?.isDirectory)?.name ?? null);
        if (files.length > 0) onFiles(files);
      }}
    >
      {children}
      {over && onFiles && <div class="drop-hint">{hint}</div>}
      {folder !== null && (
        <div class="problem drop-problem" role="alert">
          <span>“{folder}” is a folder. Drop its files instead.</span>
          <button type="button" class="button" onClick={() => setFolder(null)}>
            Dismiss
          </button>
        </div>
      )}
    </div>
  );
}
