// Field for the reason of a denial, and its buttons. The agent receives the reason.

import type { ComponentChildren } from "preact";
import { isComposing } from "../dom/ime";

interface DenyFieldProps {
  reason: string;
  disabled: boolean;
  onChange: (reason: string) => void;
  onDeny: () => void;
  /** Buttons that deny. */
  children: ComponentChildren;
}

export function DenyField({ reason, disabled, onChange, onDeny, children }: DenyFieldProps) {
  const keyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || isComposing(event)) return;
    // The message field receives the focus during this key and would insert a line break.
    event.preventDefault();
    if (!event.repeat && reason.trim()) onDeny();
  };
  return (
    <div class="confirm-deny" role="group" aria-label="Deny">
      <input
        class="field"
        aria-label="Reason"
        dir="auto"
        placeholder="Reason (optional)"
        disabled={disabled}
        value={reason}
        onInput={(event) => onChange(event.currentTarget.value)}
        onKeyDown={keyDown}
      />
      {children}
    </div>
  );
}
