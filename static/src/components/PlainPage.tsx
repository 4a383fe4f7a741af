// A page that says one thing, in the middle.

import type { ComponentChildren } from "preact";
import { SidebarButton } from "./SidebarButton";

export function Page({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <div class="page">
      <SidebarButton />
      <h1>{title}</h1>
      {children}
    </div>
  );
}
