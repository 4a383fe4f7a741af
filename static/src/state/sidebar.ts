// Whether the list of sessions is in sight. A wide screen shows it until it is put away, a narrow one over the page while it is asked for.

import { computed, effect, signal } from "@preact/signals";
import { keepCookie, readCookie } from "../cookie";
import { route } from "../route";
import { isNarrow } from "./width";

const COOKIE = "greenroom_sidebar";

/** On a wide screen, over every reload. */
export const sidebarAway = signal(readCookie(COOKIE, ["away"]) !== undefined);

effect(() => {
  if (sidebarAway.value) document.documentElement.dataset.sidebar = "away";
  else delete document.documentElement.dataset.sidebar;
  keepCookie(COOKIE, sidebarAway.value ? "away" : null);
});

/** On a narrow screen. */
export const sidebarOpen = signal(false);

/** Whether it covers the page, of which nothing can be reached then. */
export const sidebarCovers = computed(() => sidebarOpen.value && isNarrow.value);

// Whoever has gone somewhere wants to see it. With the address itself: what the new page gives the focus to must not be covered still.
effect(() => {
  void route.value;
  sidebarOpen.value = false;
});

export function toggleSidebar(): void {
  if (isNarrow.peek()) {
    sidebarOpen.value = !sidebarOpen.peek();
    return;
  }
  // What is out of sight cannot keep the focus: its counterpart takes it.
  const hadFocus = document.activeElement?.closest(".sidebar, .sidebar-button");
  sidebarAway.value = !sidebarAway.peek();
  if (hadFocus) document.querySelector<HTMLElement>(sidebarAway.peek() ? ".sidebar-button" : ".put-away")?.focus();
}
