// Button that opens the file chooser.

import { useRef } from "preact/hooks";
import { Icon } from "./Icon";

export function AttachButton({ onFiles }: { onFiles: (files: readonly File[]) => void }) {
  const chooser = useRef<HTMLInputElement>(null);
  return (
    <>
      <button
        type="button"
        class="icon-button"
        aria-label="Attach files"
        title="Attach files (or drop, or paste them)"
        onClick={() => chooser.current?.click()}
      >
        <Icon name="attach" />
      </button>
      <input
        ref={chooser}
        type="file"
        multiple
        hidden
        onChange={(event) => {
          onFiles([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = "";
        }}
      />
    </>
  );
}
