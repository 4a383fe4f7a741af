// Icon of an entry, by its kind and its name.

import { isPicture } from "../state/pictures";
import type { WorkspaceIconName } from "./WorkspaceIcon";
import type { FileEntry } from "./workspaceFiles";

export function fileIcon({ kind, name }: FileEntry, isOpen = false): WorkspaceIconName {
  switch (kind) {
    case "directory":
      return isOpen ? "folder_open" : "folder";
    case "link":
      return "link";
    case "other":
      return "device";
    case "file":
      return isPicture(name) ? "picture" : "file";
  }
}
