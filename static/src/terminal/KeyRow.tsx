// Keys that a touch keyboard lacks. Shown on touch screens only.

import { ROW_KEYS, type RowKey } from "./touchKeys";
import type { ShellView } from "./shellView";

const LABELS: Partial<Record<RowKey, string>> = { Left: "←", Up: "↑", Down: "↓", Right: "→" };

export function KeyRow({ view }: { view: ShellView }) {
  return (
    <div class="key-row" role="toolbar" aria-label="Terminal keys">
      {ROW_KEYS.map((key) => (
        <button
          key={key}
          type="button"
          class="button"
          aria-label={key}
          aria-pressed={key === "Ctrl" ? view.ctrl.value : undefined}
          // Keeps the focus in the terminal, so that the touch keyboard stays open.
          onPointerDown={(event) => event.preventDefault()}
          onClick={() => view.press(key)}
        >
          {LABELS[key] ?? key}
        </button>
      ))}
    </div>
  );
}
