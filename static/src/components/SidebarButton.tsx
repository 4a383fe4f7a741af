// Opens the sidebar on a narrow screen, where it covers the page; wide screens always show it.

import { computed, effect, signal } from "@preact/signals";
import { route } from "../route";
import { isNarrow } from "../state/width";
import { Icon } from "./Icon";

export const sidebarOpen = signal(false);

/** Whether it covers the page, of which nothing can be reached then. */
export const sidebarCovers = computed(() => sidebarOpen.value && isNarrow.value);

// Whoever has gone somewhere wants to see it. With the address itself: what the new page gives the focus to must not be covered still.
effect(() => {
  void route.value;
  sidebarOpen.value = false;
});

export function SidebarButton() {
  return (
    <button
      type="button"
      class="icon-button sidebar-button"
      aria-label="Show the list of sessions"
      aria-expanded={sidebarCovers.value}
      onClick={() => (sidebarOpen.value = true)}
    >
      <Icon name="menu" />
    </button>
  );
}

/** Moves the focus to the first link in it; the returned function gives it back, unless the page has it by then. */
export function enterSidebar(): () => void {
  document.querySelector<HTMLElement>(".sidebar a")?.focus();
  return () => {
    if (!document.activeElement?.closest(".main, dialog")) document.querySelector<HTMLElement>(".sidebar-button")?.focus();
  };
}

/** Escape closes it, and does nothing else then: what listens at the window hears of it later. */
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || !sidebarCovers.peek()) return;
  if (document.querySelector("dialog[open]")) return;
  event.preventDefault();
  sidebarOpen.value = false;
});
