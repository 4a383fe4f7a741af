// Two panes side by side with a divider.

import type { ComponentChildren } from "preact";
import type { PaneLayout } from "../state/layout";
import { lazy } from "./lazy";

const Divider = lazy((later) => later.Divider, <div class="divider" />);

interface SplitPaneProps {
  layout: PaneLayout;
  onChange: (layout: PaneLayout) => void;
  first: ComponentChildren;
  second: ComponentChildren;
}

export function SplitPane({ layout, onChange, first, second }: SplitPaneProps) {
  const { share, folded } = layout;
  return (
    <div class="split" style={{ "--first": `${share}fr`, "--second": `${1 - share}fr` }}>
      <div class="split-pane first" hidden={folded === "chat"}>
        {first}
      </div>
      {folded === null && <Divider layout={layout} onChange={onChange} />}
      {folded !== "workspace" && <div class="split-pane second">{second}</div>}
    </div>
  );
}
