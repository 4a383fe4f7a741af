// Search in the lines of a terminal.

import { useEffect, useRef, useState } from "preact/hooks";
import { Icon } from "../components/Icon";
import type { EmulatorScreen } from "./emulatorScreen";

interface FindBarProps {
  screen: EmulatorScreen;
  onClose: () => void;
}

export function FindBar({ screen, onClose }: FindBarProps) {
  const field = useRef<HTMLInputElement>(null);
  const [isMissing, setMissing] = useState(false);
  useEffect(() => field.current?.focus(), []);

  const close = () => {
    screen.endFind();
    onClose();
    screen.focus();
  };
  const find = (isBackwards: boolean) => {
    const text = field.current?.value ?? "";
    setMissing(text !== "" && !screen.find(text, isBackwards));
  };
  return (
    <div class="find-bar">
      <input
        ref={field}
        class="field"
        aria-label="Find in the terminal"
        placeholder="Find"
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        onInput={() => find(true)}
        onKeyDown={(event) => {
          if (event.key === "Enter") find(!event.shiftKey);
          else if (event.key === "Escape") close();
          else return;
          event.preventDefault();
        }}
      />
      <span class="muted" role="status">
        {isMissing && "Not found"}
      </span>
      <button type="button" class="button" onClick={() => find(true)}>
        Up
      </button>
      <button type="button" class="button" onClick={() => find(false)}>
        Down
      </button>
      <button type="button" class="icon-button" aria-label="Close the search" title="Close the search" onClick={close}>
        <Icon name="cross" />
      </button>
    </div>
  );
}
