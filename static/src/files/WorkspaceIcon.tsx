// Icons of the Files and Terminal tabs. The first view does without them.

import { h } from "preact";
import ArrowLeft from "lucide/dist/esm/icons/arrow-left.mjs";
import CircleDot from "lucide/dist/esm/icons/circle-dot.mjs";
import EyeOff from "lucide/dist/esm/icons/eye-off.mjs";
import File from "lucide/dist/esm/icons/file.mjs";
import FilePlus from "lucide/dist/esm/icons/file-plus.mjs";
import FileSymlink from "lucide/dist/esm/icons/file-symlink.mjs";
import FileText from "lucide/dist/esm/icons/file-text.mjs";
import Folder from "lucide/dist/esm/icons/folder.mjs";
import FolderOpen from "lucide/dist/esm/icons/folder-open.mjs";
import FolderPlus from "lucide/dist/esm/icons/folder-plus.mjs";
import Image from "lucide/dist/esm/icons/image.mjs";
import Upload from "lucide/dist/esm/icons/upload.mjs";

const WORKSPACE_ICONS = {
  back: ArrowLeft,
  device: CircleDot,
  file: File,
  folder: Folder,
  folder_open: FolderOpen,
  link: FileSymlink,
  new_file: FilePlus,
  new_folder: FolderPlus,
  picture: Image,
  screen_reader: EyeOff,
  text: FileText,
  upload: Upload,
} as const;

export type WorkspaceIconName = keyof typeof WORKSPACE_ICONS;

export function WorkspaceIcon({ name }: { name: WorkspaceIconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      {WORKSPACE_ICONS[name].map(([tag, attributes]) => h(tag, attributes))}
    </svg>
  );
}
