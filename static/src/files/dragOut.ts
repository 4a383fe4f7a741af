// Drag of an entry out of the page. Chromium saves the dragged file; other browsers drop its path.

import { ticketed } from "../wire/browsers";
import { addressOfFile, archiveAddress, type FileEntry } from "./workspaceFiles";

/** Address with a ticket. A drag cannot wait for one, so the press that begins it asks. */
let prepared: { address: string; followed: string } | null = null;

export function prepareDragOut(session: string, entry: FileEntry): void {
  const address = addressOf(session, entry);
  prepared = null;
  if (address === null) return;
  void ticketed(address).then(
    (followed) => (prepared = { address, followed }),
    () => {},
  );
}

export function startDragOut(event: DragEvent, session: string, entry: FileEntry): void {
  const { dataTransfer } = event;
  if (!dataTransfer) return;
  dataTransfer.effectAllowed = "copy";
  dataTransfer.setData("text/plain", entry.path);
  const address = addressOf(session, entry);
  if (address === null || prepared?.address !== address) return;
  // A colon separates the parts, so the name must not contain one.
  const name = `${entry.name.replaceAll(":", "-")}${entry.kind === "file" ? "" : ".zip"}`;
  dataTransfer.setData("DownloadURL", `application/octet-stream:${name}:${new URL(prepared.followed, location.href).href}`);
}

function addressOf(session: string, entry: FileEntry): string | null {
  if (entry.kind === "file") return addressOfFile(session, entry, { download: "true" });
  return entry.kind === "directory" ? archiveAddress(session, entry) : null;
}
