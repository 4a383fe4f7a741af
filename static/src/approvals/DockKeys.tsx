// Keys of the approval dock, shown while the dock has the focus.

import { MOD } from "../state/keys";

export function DockKeys({ canAllow, canDeny }: { canAllow: boolean; canDeny: boolean }) {
  return (
    <p class="confirm-keys muted">
      {canAllow && (
        <span>
          <kbd>{MOD}</kbd>+<kbd>Enter</kbd> allows once
        </span>
      )}
      {canDeny && (
        <span>
          <kbd>{MOD}</kbd>+<kbd>Backspace</kbd> denies
        </span>
      )}
      <span>
        <kbd>Esc</kbd> decides nothing
      </span>
    </p>
  );
}
