// A modal question. Escape and a click beside it say no.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Props {
  title: string;
  /** A palette shows no heading of its own and stands higher; a sheet is wider. */
  kind?: "question" | "sheet" | "palette";
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, kind = "question", onClose, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog
      ref={dialog}
      class={`dialog ${kind}`}
      aria-label={title}
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <div class="dialog-body">
        {kind !== "palette" && <h2>{title}</h2>}
        {children}
      </div>
    </dialog>
  );
}
