// Files of a drop, with those inside of dropped folders.

export interface DroppedFile {
  file: File;
  /** Path from the place of the drop. */
  path: string;
}

/**
 * Reads a drop. Must be called within the event, because the browser empties the data afterwards.
 */
export async function droppedFiles({ items }: DataTransfer): Promise<DroppedFile[]> {
  const dropped = [...items].filter(({ kind }) => kind === "file").map((item) => ({ entry: item.webkitGetAsEntry(), file: item.getAsFile() }));
  const found = await Promise.all(
    dropped.map(({ entry, file }) => (entry?.isDirectory ? filesBelow(entry as FileSystemDirectoryEntry, "") : file ? [{ file, path: file.name }] : [])),
  );
  return found.flat();
}

async function filesBelow(directory: FileSystemDirectoryEntry, above: string): Promise<DroppedFile[]> {
  const path = `${above}${directory.name}/`;
  const reader = directory.createReader();
  const found: DroppedFile[] = [];
  // A browser returns a directory in parts, and nothing at its end.
  for (;;) {
    const part = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (part.length === 0) return found;
    for (const entry of part) {
      if (entry.isDirectory) found.push(...(await filesBelow(entry as FileSystemDirectoryEntry, path)));
      else {
        const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
        found.push({ file, path: `${path}${file.name}` });
      }
    }
  }
}
