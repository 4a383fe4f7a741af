// Downloads to the user's disk.

/** Delay before a blob address is released. Some browsers start to save late. */
const RELEASE_AFTER_MS = 10_000;

export function downloadText(name: string, type: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type }));
  downloadUrl(address, name);
  setTimeout(() => URL.revokeObjectURL(address), RELEASE_AFTER_MS);
}

/**
 * Downloads an address. Without a name, the server's `Content-Disposition` decides. The page stays
 * open, also on an error.
 */
export function downloadUrl(address: string, name = ""): void {
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
}
