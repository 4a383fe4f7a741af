// Links to files of a session. The browser follows them without the page's secret, so each gets a
// ticket when it is pressed.

import { ticketed } from "../wire/browsers";
import { clickLink } from "./download";

/** Follows a pressed link with a ticket. `inNewTab`: as the link or the pressed keys ask. */
export async function followLink(link: HTMLAnchorElement, inNewTab: boolean): Promise<void> {
  // A browser shows at most a picture. A new tab for anything else would stay empty.
  const isShown = !link.hasAttribute("download") && link.pathname.includes("/files/");
  const name = isShown ? undefined : link.download;
  // Opened at once: later, the browser would take the window for an advertisement.
  const tab = inNewTab && name === undefined ? open("", "_blank") : null;
  if (tab) tab.opener = null;
  try {
    const address = await ticketed(link.href);
    if (tab) tab.location.replace(address);
    else clickLink(address, name);
  } catch {
    // The plain address shows the server's reason, or the browser's own page.
    if (tab) tab.location.replace(link.href);
    else clickLink(link.href, name);
  }
}
