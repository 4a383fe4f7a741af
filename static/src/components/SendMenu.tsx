// Other half of the send button while the agent works: queue, steer, interrupt.

import { focusField } from "../dom/focusField";
import type { SendMode } from "../state/sendMode";
import { Popover } from "./Popover";

interface SendMenuProps {
  canSend: boolean;
  onSend: (mode: SendMode) => void;
  /** Absent if nothing would be interrupted. */
  onInterrupt: (() => void) | undefined;
}

export function SendMenu({ canSend, onSend, onInterrupt }: SendMenuProps) {
  return (
    <Popover label="Queue, steer or interrupt" icon="chevron" buttonClass="send send-more">
      {(close) => {
        const act = (action: () => void) => () => {
          action();
          close();
          focusField();
        };
        return (
          <>
            <button type="button" class="menu-entry" disabled={!canSend} onClick={act(() => onSend("queue"))}>
              Queue<span class="menu-needs">Sent after this turn</span>
            </button>
            <button type="button" class="menu-entry" disabled={!canSend} onClick={act(() => onSend("steer"))}>
              Steer<span class="menu-needs">Read at the agent's next step</span>
            </button>
            {onInterrupt && (
              <button type="button" class="menu-entry danger" onClick={act(onInterrupt)}>
                Interrupt<span class="menu-needs">Stops the turn now</span>
              </button>
            )}
          </>
        );
      }}
    </Popover>
  );
}
