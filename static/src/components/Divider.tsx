// Divider between two panes, moved by pointer or keys.

import { moveByKey } from "../state/divider";
import { clampShare, MAX_SHARE, MIN_SHARE, type PaneLayout } from "../state/layout";

interface DividerProps {
  layout: PaneLayout;
  stacked: boolean;
  onChange: (layout: PaneLayout) => void;
}

export function Divider({ layout, stacked, onChange }: DividerProps) {
  const drag = (event: PointerEvent) => {
    const divider = event.currentTarget as HTMLElement;
    if (!divider.hasPointerCapture(event.pointerId) || !divider.parentElement) return;
    const { left, top, width, height } = divider.parentElement.getBoundingClientRect();
    const to = stacked ? (event.clientY - top) / height : (event.clientX - left) / width;
    onChange({ ...layout, share: clampShare(to) });
  };
  const keyDown = (event: KeyboardEvent) => {
    const moved = moveByKey(layout, event.key, stacked ? ["ArrowUp", "ArrowDown"] : ["ArrowLeft", "ArrowRight"]);
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
      aria-orientation={stacked ? "horizontal" : "vertical"}
      aria-valuemin={Math.round(MIN_SHARE * 100)}
      aria-valuemax={Math.round(MAX_SHARE * 100)}
      aria-valuenow={Math.round(layout.share * 100)}
      onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
      onPointerMove={drag}
      onKeyDown={keyDown}
    />
  );
}
