// Panel below a button, or above it if there is more room. Escape, a click outside and a lost focus
// close it.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "./Icon";

/**
 * Room for any menu, in pixels. With less below, the panel opens to the larger side and scrolls.
 */
const ENOUGH = 340;
/** Gap to the button and to the edge of the window. */
const GAP = 4;

interface PopoverProps {
  label: string;
  icon?: IconName;
  /** Content and class of the button, in place of an icon. */
  text?: ComponentChildren;
  buttonClass?: string;
  /** Content of the panel. `close` closes it. */
  children: (close: () => void) => ComponentChildren;
}

export function Popover({ label, icon, text, buttonClass = "icon-button", children }: PopoverProps) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const panel = useRef<HTMLDivElement>(null);

  const place = () => button.current && panel.current && putBeside(button.current, panel.current);
  // Places the panel after every render, because the button may have moved.
  useLayoutEffect(() => void place());

  // Attaches the listeners before paint. A dialog opened right afterwards must receive its own
  // Escape.
  useLayoutEffect(() => {
    if (!open) return;
    const outside = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    const moved = (event: Event) => {
      if ((event.target as Node).contains(root.current)) place();
    };
    // Captures Escape anywhere and first. A click on plain text in the panel clears the focus.
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
        class={buttonClass}
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

/** Places the panel in the window. Inside the button's scroll box, the panel would be cut off. */
function putBeside(button: Element, panel: HTMLElement): void {
  const { clientWidth, clientHeight } = document.documentElement;
  const { top, right, bottom, left } = button.getBoundingClientRect();
  const below = clientHeight - bottom - 2 * GAP;
  const above = top - 2 * GAP;
  const isAbove = below < ENOUGH && above > below;
  const [from, to] = isAbove ? ["auto", `${clientHeight - top + GAP}px`] : [`${bottom + GAP}px`, "auto"];
  // A panel that is wider than the room left of its button begins with the button, if it fits.
  const width = panel.offsetWidth;
  const isCut = width + GAP > right;
  panel.style.setProperty("--inset", isCut ? `${from} auto ${to} ${Math.max(GAP, Math.min(left, clientWidth - width - GAP))}px` : `${from} ${clientWidth - right}px ${to} auto`);
  panel.style.setProperty("--room", `${isAbove ? above : below}px`);
}
