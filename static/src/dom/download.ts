// Gives the person a file to keep.

/** Long enough for a browser that begins to save late. */
const RELEASE_AFTER_MS = 10_000;

export function saveFile(name: string, type: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type }));
  save(address, name);
  setTimeout(() => URL.revokeObjectURL(address), RELEASE_AFTER_MS);
}

/** What lies at an address; without a name it is the server's to say. The page stays, also where there is no answer. */
export function save(address: string, name = ""): void {
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
}
