// Divider between two panes, moved by pointer or keys.

import { moveByKey } from "../state/divider";
import { clampShare, MAX_SHARE, MIN_SHARE, type PaneLayout } from "../state/layout";

interface DividerProps {
  layout: PaneLayout;
  onChange: (layout: PaneLayout) => void;
}

export function Divider({ layout, onChange }: DividerProps) {
  const drag = (event: PointerEvent) => {
    const divider = event.currentTarget as HTMLElement;
    if (!divider.hasPointerCapture(event.pointerId) || !divider.parentElement) return;
    const { left, width } = divider.parentElement.getBoundingClientRect();
    onChange({ ...layout, share: clampShare((event.clientX - left) / width) });
  };
  const keyDown = (event: KeyboardEvent) => {
    const moved = moveByKey(layout, event.key, ["ArrowLeft", "ArrowRight"]);
    if (!moved) return;
    event.preventDefault();
    onChange(moved);
  };
  return (
    <div
      class="divider"
      role="separator"
      tabIndex={0}
      aria-label="Divider between conversation and workspace"
      aria-orientation="vertical"
      aria-valuemin={Math.round(MIN_SHARE * 100)}
      aria-valuemax={Math.round(MAX_SHARE * 100)}
      aria-valuenow={Math.round(layout.share * 100)}
      onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
      onPointerMove={drag}
      onKeyDown={keyDown}
    />
  );
}
