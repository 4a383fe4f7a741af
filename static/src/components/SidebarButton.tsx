// Opens the sidebar on a narrow screen, where it covers the page; wide screens always show it.

import { signal } from "@preact/signals";
import { Icon } from "./Icon";

export const sidebarOpen = signal(false);

export function SidebarButton() {
  return (
    <button
      type="button"
      class="icon-button sidebar-button"
      aria-label="Show the list of sessions"
      onClick={() => (sidebarOpen.value = true)}
    >
      <Icon name="menu" />
    </button>
  );
}
