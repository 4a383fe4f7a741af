// Gives the person a file to keep.

/** Long enough for a browser that begins to save late. */
const RELEASE_AFTER_MS = 10_000;

export function saveFile(name: string, type: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), RELEASE_AFTER_MS);
}
