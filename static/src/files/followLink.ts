// Links that the browser follows itself: downloads and archives. A request of the page can carry
// headers, a followed link cannot.

import { downloadUrl } from "../dom/download";

/** Downloads an address of this server. The server's `Content-Disposition` names the file. */
export function followLink(address: string): void {
  downloadUrl(address);
}

/** Returns the address that a file dragged out of the page is read from. */
export function dragOutLink(address: string): string {
  return new URL(address, location.href).href;
}
