// Page with a single centred statement.

import type { ComponentChildren } from "preact";
import { SidebarButton } from "./SidebarButton";

export function PlainPage({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <div class="page">
      <SidebarButton />
      <h1>{title}</h1>
      {children}
    </div>
  );
}
