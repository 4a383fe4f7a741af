// Files may be dropped anywhere on a session's page.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { uploadsOf } from "../state/uploads";

export function DropZone({ id, children }: { id: string; children: ComponentChildren }) {
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
        uploadsOf(id).add(event.dataTransfer?.files ?? []);
      }}
    >
      {children}
      {over && <div class="drop-hint">Drop to attach to your next message</div>}
    </div>
  );
}
