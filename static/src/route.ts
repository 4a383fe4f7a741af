// Current page. The address is its only storage.

import { computed, signal } from "@preact/signals";
import { loadLazy } from "./loadLazy";

export type Route =
  | { page: "home" }
  | { page: "session"; id: string }
  /** `file`: an address on this server. Empty: the user chooses a file. */
  | { page: "recording"; file: string }
  | { page: "admin" }
  | { page: "docs" }
  | { page: "unknown" };

/** Address as an object, so that navigation to the same address also notifies subscribers. */
const current = signal({ address: location.pathname + location.search });

export const route = computed<Route>(() => {
  const [pathname = "", search] = current.value.address.split(/\?(.*)/s);
  return parseRoute(pathname, search);
});

export function parseRoute(pathname: string, search = ""): Route {
  const replay = new URLSearchParams(search).get("replay");
  if (replay !== null) return { page: "recording", file: replay };
  const [first, second, ...rest] = pathname.split("/").filter(Boolean);
  if (rest.length > 0) return { page: "unknown" };
  if (first === undefined || (first === "sessions" && second === undefined)) return { page: "home" };
  if (first === "sessions" && second !== undefined) return sessionPage(second);
  if (first === "admin" && second === undefined) return { page: "admin" };
  if (first === "api" && second === "docs") return { page: "docs" };
  return { page: "unknown" };
}

/** Parses a session id. A malformed `%` escape names no session. */
function sessionPage(encoded: string): Route {
  try {
    return { page: "session", id: decodeURIComponent(encoded) };
  } catch {
    return { page: "unknown" };
  }
}

export function navigate(to: string): void {
  if (to !== location.pathname + location.search) history.pushState(null, "", to);
  current.value = { address: to };
}

addEventListener("popstate", () => (current.value = { address: location.pathname + location.search }));

/**
 * Links inside the UI change the page without a load. Clicks with a modifier key stay with the
 * browser.
 */
document.addEventListener("click", (event) => {
  const link = (event.target as Element).closest?.("a[href^='/']");
  if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download")) return;
  if (parseRoute(link.pathname).page === "unknown" || link.hash || event.defaultPrevented) return;
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  navigate(link.pathname + link.search);
});

/** Links to files of a session need a ticket. A middle click opens a new tab, too. */
function followFile(event: MouseEvent): void {
  const link = (event.target as Element).closest?.("a[href^='/api/sessions/']");
  if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button > 1) return;
  event.preventDefault();
  const inNewTab = link.target !== "" || event.button === 1 || event.metaKey || event.ctrlKey || event.shiftKey;
  void loadLazy().then(({ followLink }) => followLink(link, inNewTab));
}

document.addEventListener("click", followFile);
document.addEventListener("auxclick", followFile);
