// Drag of an entry out of the page. Chromium saves the dragged file; other browsers drop its path.

import { dragOutLink } from "./followLink";
import { addressOfFile, archiveAddress, type FileEntry } from "./workspaceFiles";

export function startDragOut(event: DragEvent, session: string, entry: FileEntry): void {
  const { dataTransfer } = event;
  if (!dataTransfer) return;
  dataTransfer.effectAllowed = "copy";
  dataTransfer.setData("text/plain", entry.path);
  if (entry.kind !== "file" && entry.kind !== "directory") return;
  const isFile = entry.kind === "file";
  const address = isFile ? addressOfFile(session, entry, { download: "true" }) : archiveAddress(session, entry);
  // A colon separates the parts, so the name must not contain one.
  const name = `${entry.name.replaceAll(":", "-")}${isFile ? "" : ".zip"}`;
  dataTransfer.setData("DownloadURL", `application/octet-stream:${name}:${dragOutLink(address)}`);
}
