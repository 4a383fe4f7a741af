// Two panes side by side, or one above the other on a narrow screen, with a divider between them.

import type { ComponentChildren } from "preact";
import type { Layout } from "../state/layout";
import { lazy } from "./lazy";

const Divider = lazy((later) => later.Divider, <div class="divider" />);

interface Props {
  layout: Layout;
  stacked: boolean;
  onChange: (layout: Layout) => void;
  first: ComponentChildren;
  second: ComponentChildren;
}

export function Split({ layout, stacked, onChange, first, second }: Props) {
  const { share, folded } = layout;
  return (
    <div class={stacked ? "split stacked" : "split"} style={{ "--first": `${share}fr`, "--second": `${1 - share}fr` }}>
      <div class="split-pane first" hidden={folded === "chat"}>
        {first}
      </div>
      {folded === null && <Divider layout={layout} stacked={stacked} onChange={onChange} />}
      {folded !== "workspace" && <div class="split-pane second">{second}</div>}
    </div>
  );
}
