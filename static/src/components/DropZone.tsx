// Files may be dropped anywhere on a page that a message or a task is written on.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

interface Props {
  hint: string;
  onFiles: (files: readonly File[]) => void;
  children: ComponentChildren;
}

export function DropZone({ hint, onFiles, children }: Props) {
  const [over, setOver] = useState(false);
  const isFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") === true;

  return (
    <div
      class="drop-zone"
      onDragOver={(event) => {
        if (!isFiles(event)) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setOver(false);
      }}
      onDrop={(event) => {
        if (!isFiles(event)) return;
        event.preventDefault();
        setOver(false);
        onFiles([...(event.dataTransfer?.files ?? [])]);
      }}
    >
      {children}
      {over && <div class="drop-hint">{hint}</div>}
    </div>
  );
}
