// Current page. The address is its only storage.

import { computed, signal } from "@preact/signals";
import { serverAddress, basePath, currentPath, withoutBase } from "./basePath";
import { loadLazy } from "./loadLazy";

export type Route =
  | { page: "home" }
  /** `at`: number of an event to show. */
  | { page: "session"; id: string; at?: number }
  /** `file`: an address on this server. Empty: the user chooses a file. */
  | { page: "recording"; file: string }
  | { page: "admin" }
  | { page: "docs" }
  | { page: "unknown" };

/**
 * Address without the base path. An object, so that navigation to the same address also notifies
 * subscribers.
 */
const current = signal({ address: currentPath() + location.search });

export const route = computed<Route>(() => {
  const [pathname = "", search] = current.value.address.split(/\?(.*)/s);
  return parseRoute(pathname, search);
});

export function parseRoute(pathname: string, search = ""): Route {
  const query = new URLSearchParams(search);
  const replay = query.get("replay");
  if (replay !== null) return { page: "recording", file: replay };
  const [first, second, ...rest] = pathname.split("/").filter(Boolean);
  if (rest.length > 0) return { page: "unknown" };
  if (first === undefined || (first === "sessions" && second === undefined)) return { page: "home" };
  if (first === "sessions" && second !== undefined) return sessionPage(second, Number(query.get("at")));
  if (first === "admin" && second === undefined) return { page: "admin" };
  if (first === "api" && second === "docs") return { page: "docs" };
  return { page: "unknown" };
}

/** Parses a session id. A malformed `%` escape names no session. */
function sessionPage(encoded: string, at: number): Route {
  try {
    return { page: "session", id: decodeURIComponent(encoded), ...(Number.isSafeInteger(at) && at > 0 && { at }) };
  } catch {
    return { page: "unknown" };
  }
}

/** Shows the page of an address, which has no base path. */
export function navigate(to: string): void {
  const address = serverAddress(to);
  if (address !== location.pathname + location.search) history.pushState(null, "", address);
  current.value = { address: to };
}

addEventListener("popstate", () => {
  const address = currentPath() + location.search;
  // A closed sheet goes back to the same address, which is no new visit.
  if (address !== current.peek().address) current.value = { address };
});

/**
 * Links inside the UI change the page without a load. Clicks with a modifier key stay with the
 * browser.
 */
document.addEventListener("click", (event) => {
  const link = (event.target as Element).closest?.("a[href^='/']");
  if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download")) return;
  const path = withoutBase(basePath, link.pathname);
  if (parseRoute(path).page === "unknown" || link.hash || event.defaultPrevented) return;
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  navigate(path + link.search);
});

/** Links to files of a session need a ticket. A middle click opens a new tab, too. */
function followFile(event: MouseEvent): void {
  const link = (event.target as Element).closest?.("a[href^='/']");
  if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button > 1) return;
  if (!withoutBase(basePath, link.pathname).startsWith("/api/sessions/")) return;
  event.preventDefault();
  const inNewTab = link.target !== "" || event.button === 1 || event.metaKey || event.ctrlKey || event.shiftKey;
  void loadLazy().then(({ followLink }) => followLink(link, inNewTab));
}

document.addEventListener("click", followFile);
document.addEventListener("auxclick", followFile);
