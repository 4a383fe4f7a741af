// Downloads of files and archives. The browser follows these links itself, so they carry a ticket.

import { serverAddress } from "../basePath";
import { downloadUrl } from "../dom/download";

/** Downloads an address of this server. The server's `Content-Disposition` names the file. */
export function followLink(address: string): void {
  void downloadUrl(serverAddress(address));
}
