// Button that shows all lines of a long text, or its beginning again. Keeps the focus.

import { useLayoutEffect, useRef } from "preact/hooks";
import { plural } from "../format";

interface FoldButtonProps {
  /** Number of all lines. */
  lines: number;
  unfolded: boolean;
  onChange: (unfolded: boolean) => void;
}

export function FoldButton({ lines, unfolded, onChange }: FoldButtonProps) {
  const button = useRef<HTMLButtonElement>(null);
  const wasUnfolded = useRef(unfolded);
  // A shortened text would leave the button, and the reader, above the window.
  useLayoutEffect(() => {
    if (wasUnfolded.current && !unfolded) button.current?.scrollIntoView?.({ block: "nearest" });
    wasUnfolded.current = unfolded;
  }, [unfolded]);
  return (
    <button ref={button} type="button" class="show-all" aria-expanded={unfolded} onClick={() => onChange(!unfolded)}>
      {unfolded ? "Show less" : `Show all ${plural(lines, "line")}`}
    </button>
  );
}
