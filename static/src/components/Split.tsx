// Two panes side by side, or one above the other on a narrow screen, with a divider between them: dragged, or moved by keys.

import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { clampShare, LARGEST, moveByKey, SMALLEST, type Layout } from "../state/layout";

interface Props {
  layout: Layout;
  stacked: boolean;
  onChange: (layout: Layout) => void;
  first: ComponentChildren;
  second: ComponentChildren;
}

export function Split({ layout, stacked, onChange, first, second }: Props) {
  const root = useRef<HTMLDivElement>(null);
  const { share, folded } = layout;

  const drag = (event: PointerEvent) => {
    const divider = event.currentTarget as HTMLElement;
    if (!divider.hasPointerCapture(event.pointerId) || !root.current) return;
    const { left, top, width, height } = root.current.getBoundingClientRect();
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
    <div class={stacked ? "split stacked" : "split"} ref={root} style={{ "--first": `${share}fr`, "--second": `${1 - share}fr` }}>
      <div class="split-pane first" hidden={folded === "chat"}>
        {first}
      </div>
      {folded === null && (
        <div
          class="divider"
          role="separator"
          tabIndex={0}
          aria-label="Divider between conversation and workspace"
          aria-orientation={stacked ? "horizontal" : "vertical"}
          aria-valuemin={Math.round(SMALLEST * 100)}
          aria-valuemax={Math.round(LARGEST * 100)}
          aria-valuenow={Math.round(share * 100)}
          onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
          onPointerMove={drag}
          onKeyDown={keyDown}
        />
      )}
      {folded !== "workspace" && <div class="split-pane second">{second}</div>}
    </div>
  );
}
