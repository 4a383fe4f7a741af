// Icons of the Files and Terminal tabs. The first view does without them.

import { h } from "preact";
import { ArrowLeft, CircleDot, EyeOff, File, FilePlus, FileSymlink, FileText, Folder, FolderOpen, FolderPlus, Image, Upload } from "lucide";

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
