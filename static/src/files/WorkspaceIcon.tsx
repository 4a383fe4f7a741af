// Icons of the workspace and its tabs. The first view does without them.

import { h } from "preact";
import ArrowLeft from "lucide/dist/esm/icons/arrow-left.mjs";
import CircleDot from "lucide/dist/esm/icons/circle-dot.mjs";
import Columns2 from "lucide/dist/esm/icons/columns-2.mjs";
import Download from "lucide/dist/esm/icons/download.mjs";
import EyeOff from "lucide/dist/esm/icons/eye-off.mjs";
import File from "lucide/dist/esm/icons/file.mjs";
import FilePlus from "lucide/dist/esm/icons/file-plus.mjs";
import FileSymlink from "lucide/dist/esm/icons/file-symlink.mjs";
import FileText from "lucide/dist/esm/icons/file-text.mjs";
import Folder from "lucide/dist/esm/icons/folder.mjs";
import FolderOpen from "lucide/dist/esm/icons/folder-open.mjs";
import FolderPlus from "lucide/dist/esm/icons/folder-plus.mjs";
import GitBranch from "lucide/dist/esm/icons/git-branch.mjs";
import Image from "lucide/dist/esm/icons/image.mjs";
import Maximize2 from "lucide/dist/esm/icons/maximize-2.mjs";
import Undo2 from "lucide/dist/esm/icons/undo-2.mjs";
import Upload from "lucide/dist/esm/icons/upload.mjs";

const WORKSPACE_ICONS = {
  back: ArrowLeft,
  branch: GitBranch,
  columns: Columns2,
  device: CircleDot,
  download: Download,
  file: File,
  folder: Folder,
  folder_open: FolderOpen,
  link: FileSymlink,
  new_file: FilePlus,
  new_folder: FolderPlus,
  picture: Image,
  screen_reader: EyeOff,
  text: FileText,
  undo: Undo2,
  upload: Upload,
  widen: Maximize2,
} as const;

export type WorkspaceIconName = keyof typeof WORKSPACE_ICONS;

export function WorkspaceIcon({ name }: { name: WorkspaceIconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      {WORKSPACE_ICONS[name].map(([tag, attributes]) => h(tag, attributes))}
    </svg>
  );
}
