// Downloads to the user's disk.

import { ticketed } from "../wire/browsers";

/** Delay before a blob address is released. Some browsers start to save late. */
const RELEASE_AFTER_MS = 10_000;

export const downloadText = (name: string, type: string, text: string): void => downloadBlob(name, new Blob([text], { type }));

export function downloadBlob(name: string, blob: Blob): void {
  const address = URL.createObjectURL(blob);
  clickLink(address, name);
  setTimeout(() => URL.revokeObjectURL(address), RELEASE_AFTER_MS);
}

/**
 * Downloads an address of this server. Its `Content-Disposition` decides on the name. The page
 * stays open, also on an error.
 */
export async function downloadUrl(address: string): Promise<void> {
  clickLink(await ticketed(address).catch(() => address), "");
}

/** Follows a link that is not on the page. With a `name`, the browser saves; `""`: any name. */
export function clickLink(address: string, name?: string): void {
  const link = document.createElement("a");
  link.href = address;
  if (name !== undefined) link.download = name;
  link.click();
}
