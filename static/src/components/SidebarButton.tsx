// Brings the list of sessions back where it is out of sight: put away, or on a narrow screen. Hidden beside the list itself.

import { plural } from "../format";
import { waitingElsewhere } from "../state/current";
import { MOD } from "../state/keys";
import { sidebarCovers, sidebarOpen, toggleSidebar } from "../state/sidebar";
import { isNarrow } from "../state/width";
import { Icon } from "./Icon";

const SHOW = "Show the list of sessions";

export function SidebarButton() {
  const waiting = waitingElsewhere.value;
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
