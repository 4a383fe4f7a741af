// Visibility of the sidebar. A wide screen shows it unless hidden; a narrow one shows it over the
// page on request.

import { computed, effect, signal } from "@preact/signals";
import { writeCookie, readCookie } from "../cookie";
import { route } from "../route";
import { refreshSessions, search } from "./sessionList";
import { isNarrow } from "./narrowScreen";

const COOKIE = "greenroom_sidebar";

/** Hidden on a wide screen, across reloads. */
export const sidebarHidden = signal(readCookie(COOKIE, ["away"]) !== undefined);

effect(() => {
  if (sidebarHidden.value) document.documentElement.dataset.sidebar = "away";
  else delete document.documentElement.dataset.sidebar;
  writeCookie(COOKIE, sidebarHidden.value ? "away" : null);
});

/** Open on a narrow screen. */
export const sidebarOpen = signal(false);

/** True while the sidebar covers the page. */
export const sidebarCovers = computed(() => sidebarOpen.value && isNarrow.value);

// Navigation closes the sidebar. At once, because the new page's focus must not be covered.
effect(() => {
  void route.value;
  sidebarOpen.value = false;
});

/** Searches sessions and conversations in the list, which it shows. */
export function searchInList(text: string): void {
  if (isNarrow.peek()) sidebarOpen.value = true;
  else sidebarHidden.value = false;
  search.value = text;
  void refreshSessions();
  // The field takes the focus once a closing dialog has restored it.
  setTimeout(() => document.querySelector<HTMLElement>(".search input")?.focus());
}

export function toggleSidebar(): void {
  if (isNarrow.peek()) {
    sidebarOpen.value = !sidebarOpen.peek();
    return;
  }
  // A hidden element cannot keep the focus, so its counterpart takes it.
  const hadFocus = document.activeElement?.closest(".sidebar, .sidebar-button");
  sidebarHidden.value = !sidebarHidden.peek();
  if (hadFocus) document.querySelector<HTMLElement>(sidebarHidden.peek() ? ".sidebar-button" : ".put-away")?.focus();
}
