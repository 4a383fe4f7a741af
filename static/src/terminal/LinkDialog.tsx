// Question before an address from a terminal is opened.

import { Dialog } from "../components/Dialog";
import { escapeInvisible } from "../escapes";

/** Returns true for an address that a browser may open. */
export const isWebAddress = (address: string): boolean => /^https?:\/\//i.test(address);

export function LinkDialog({ address, onClose }: { address: string; onClose: () => void }) {
  const open = () => {
    window.open(address, "_blank", "noopener,noreferrer");
    onClose();
  };
  return (
    <Dialog title="Open this link?" onClose={onClose}>
      <p class="terminal-link">
        <code dir="ltr">{escapeInvisible(address)}</code>
      </p>
      {!isWebAddress(address) && <p class="muted">Only web addresses can be opened.</p>}
      <div class="dialog-buttons">
        <button type="button" class="button" autofocus onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="button primary" disabled={!isWebAddress(address)} onClick={open}>
          Open
        </button>
      </div>
    </Dialog>
  );
}
