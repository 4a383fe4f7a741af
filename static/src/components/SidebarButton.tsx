// Button that shows a hidden sidebar. Not visible beside the sidebar itself.

import { plural } from "../format";
import { othersWaiting } from "../state/currentSession";
import { MOD } from "../state/keys";
import { sidebarCovers, sidebarOpen, toggleSidebar } from "../state/sidebar";
import { isNarrow } from "../state/narrowScreen";
import { Icon } from "./Icon";

const SHOW = "Show the session list";

export function SidebarButton() {
  const waiting = othersWaiting.value;
  const label = waiting > 0 ? `${SHOW}, ${plural(waiting, "waits", "wait")} for you` : SHOW;
  return (
    <button
      type="button"
      class="icon-button sidebar-button"
      aria-label={label}
      title={`${label} (${MOD} B)`}
      aria-expanded={sidebarCovers.value}
      onClick={toggleSidebar}
    >
      <Icon name={isNarrow.value ? "menu" : "sidebar"} />
      {waiting > 0 && <span class="attention" />}
    </button>
  );
}

/**
 * Focuses the sidebar's first link. The returned function restores the focus, unless the page took
 * it.
 */
export function enterSidebar(): () => void {
  document.querySelector<HTMLElement>(".sidebar a")?.focus();
  return () => {
    if (!document.activeElement?.closest(".main, dialog")) document.querySelector<HTMLElement>(".sidebar-button")?.focus();
  };
}

/** Escape closes the covering sidebar and nothing else. Listeners on the window run later. */
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || !sidebarCovers.peek()) return;
  if (document.querySelector("dialog[open]")) return;
  event.preventDefault();
  sidebarOpen.value = false;
});
