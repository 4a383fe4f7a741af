// Modal dialog. Escape and a click outside cancel it.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

interface DialogProps {
  title: string;
  /** Kind of dialog. A palette has no heading and stands higher; a sheet is wider. */
  kind?: "question" | "sheet" | "palette";
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, kind = "question", onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  // Opens before the first paint, so typed keys go to the dialog.
  useLayoutEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    // Closes before removal, so the browser restores the focus.
    return () => shown?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      class={`dialog ${kind}`}
      aria-label={title}
      // A dialog closed by its removal has been answered.
      onClose={() => dialog.current && onClose()}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <div class="dialog-body">
        {kind !== "palette" && <h2>{title}</h2>}
        {children}
      </div>
    </dialog>
  );
}
