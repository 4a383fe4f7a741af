// A small panel below a button. Escape, and a click or the focus elsewhere, close it.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "./Icon";

interface Props {
  label: string;
  icon?: IconName;
  /** What the button says in place of an icon, and how it looks. */
  text?: string;
  look?: string;
  /** The panel; `close` closes it. */
  children: (close: () => void) => ComponentChildren;
}

export function Popover({ label, icon, text, look = "icon-button", children }: Props) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);

  // With the picture: what is asked by a dialog right after it must not lose its Escape to a panel that is gone.
  useLayoutEffect(() => {
    if (!open) return;
    const outside = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    // Wherever the focus is (a click on plain text in the panel leaves it nowhere), and before anything else hears of it.
    const escape = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      close();
    };
    document.addEventListener("keydown", escape, true);
    document.addEventListener("pointerdown", outside);
    document.addEventListener("focusin", outside);
    return () => {
      document.removeEventListener("keydown", escape, true);
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("focusin", outside);
    };
  }, [open]);

  const close = () => {
    setOpen(false);
    button.current?.focus();
  };

  return (
    <div class="popover" ref={root}>
      <button
        ref={button}
        type="button"
        class={look}
        aria-label={label}
        title={label}
        aria-expanded={open}
        onClick={() => setOpen(!open)}
      >
        {icon && <Icon name={icon} />}
        {text}
      </button>
      {open && <div class="popover-panel">{children(close)}</div>}
    </div>
  );
}
