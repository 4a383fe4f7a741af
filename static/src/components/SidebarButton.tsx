// Opens the sidebar on a narrow screen, where it covers the page; wide screens always show it.

import { signal } from "@preact/signals";
import { isNarrow } from "../state/width";
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

/** Escape closes it, and does nothing else then: what listens at the window hears of it later. */
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || !sidebarOpen.peek() || !isNarrow.peek()) return;
  if (document.querySelector("dialog[open]")) return;
  event.preventDefault();
  sidebarOpen.value = false;
  document.querySelector<HTMLElement>(".sidebar-button")?.focus();
});
