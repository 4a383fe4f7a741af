// A modal question. Escape and a click beside it say no.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

interface Props {
  title: string;
  /** A palette shows no heading of its own and stands higher; a sheet is wider. */
  kind?: "question" | "sheet" | "palette";
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, kind = "question", onClose, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  // With its first picture: what is typed then belongs to it.
  useLayoutEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    // Before it is taken away: then the browser gives the focus back.
    return () => shown?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      class={`dialog ${kind}`}
      aria-label={title}
      // What closes because it is taken away has been answered.
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
