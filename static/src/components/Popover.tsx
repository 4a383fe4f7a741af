// A small panel below a button, or above it where there is no room. Escape, and a click or the focus elsewhere, close it.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "./Icon";

/** Room for any menu, in pixels. Where there is less below, the panel opens to where there is more; what has no room there scrolls. */
const ENOUGH = 340;
/** Between it and the button, and between it and the edge of the window. */
const GAP = 4;

interface Props {
  label: string;
  icon?: IconName;
  /** What the button says in place of an icon, and how it looks. */
  text?: ComponentChildren;
  look?: string;
  /** The panel; `close` closes it. */
  children: (close: () => void) => ComponentChildren;
}

export function Popover({ label, icon, text, look = "icon-button", children }: Props) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const panel = useRef<HTMLDivElement>(null);

  const place = () => button.current && panel.current && putBeside(button.current, panel.current);
  // With every picture: what the button stands in may have changed its order.
  useLayoutEffect(() => void place());

  // With the picture: what is asked by a dialog right after it must not lose its Escape to a panel that is gone.
  useLayoutEffect(() => {
    if (!open) return;
    const outside = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    const moved = (event: Event) => {
      if ((event.target as Node).contains(root.current)) place();
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
    document.addEventListener("scroll", moved, true);
    addEventListener("resize", place);
    return () => {
      document.removeEventListener("keydown", escape, true);
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("focusin", outside);
      document.removeEventListener("scroll", moved, true);
      removeEventListener("resize", place);
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
      {open && (
        <div class="popover-panel" ref={panel}>
          {children(close)}
        </div>
      )}
    </div>
  );
}

/** In the window, not in what the button scrolls with: that would cut the panel off at its edge. */
function putBeside(button: Element, panel: HTMLElement): void {
  const { clientWidth, clientHeight } = document.documentElement;
  const { top, right, bottom } = button.getBoundingClientRect();
  const below = clientHeight - bottom - 2 * GAP;
  const above = top - 2 * GAP;
  const isAbove = below < ENOUGH && above > below;
  const [from, to] = isAbove ? ["auto", `${clientHeight - top + GAP}px`] : [`${bottom + GAP}px`, "auto"];
  panel.style.setProperty("--inset", `${from} ${clientWidth - right}px ${to} auto`);
  panel.style.setProperty("--room", `${isAbove ? above : below}px`);
}
