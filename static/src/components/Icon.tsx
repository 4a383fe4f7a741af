// Icons from Lucide, named by their meaning here.

import { h } from "preact";
// Whole paths: through the package, the icons of lazy files would be in the first load.
import Activity from "lucide/dist/esm/icons/activity.mjs";
import Archive from "lucide/dist/esm/icons/archive.mjs";
import ArrowDown from "lucide/dist/esm/icons/arrow-down.mjs";
import ArrowUp from "lucide/dist/esm/icons/arrow-up.mjs";
import Check from "lucide/dist/esm/icons/check.mjs";
import ChevronRight from "lucide/dist/esm/icons/chevron-right.mjs";
import Copy from "lucide/dist/esm/icons/copy.mjs";
import Ellipsis from "lucide/dist/esm/icons/ellipsis.mjs";
import FileText from "lucide/dist/esm/icons/file-text.mjs";
import Globe from "lucide/dist/esm/icons/globe.mjs";
import Info from "lucide/dist/esm/icons/info.mjs";
import ListChecks from "lucide/dist/esm/icons/list-checks.mjs";
import Menu from "lucide/dist/esm/icons/menu.mjs";
import PanelLeft from "lucide/dist/esm/icons/panel-left.mjs";
import PanelRight from "lucide/dist/esm/icons/panel-right.mjs";
import Paperclip from "lucide/dist/esm/icons/paperclip.mjs";
import Pause from "lucide/dist/esm/icons/pause.mjs";
import Pencil from "lucide/dist/esm/icons/pencil.mjs";
import Play from "lucide/dist/esm/icons/play.mjs";
import Plus from "lucide/dist/esm/icons/plus.mjs";
import Search from "lucide/dist/esm/icons/search.mjs";
import Settings from "lucide/dist/esm/icons/settings.mjs";
import Square from "lucide/dist/esm/icons/square.mjs";
import SquareTerminal from "lucide/dist/esm/icons/square-terminal.mjs";
import Wrench from "lucide/dist/esm/icons/wrench.mjs";
import X from "lucide/dist/esm/icons/x.mjs";

const ICONS = {
  archive: Archive,
  attach: Paperclip,
  check: Check,
  chevron: ChevronRight,
  copy: Copy,
  cross: X,
  down: ArrowDown,
  events: Activity,
  file: FileText,
  globe: Globe,
  info: Info,
  menu: Menu,
  more: Ellipsis,
  pause: Pause,
  pencil: Pencil,
  plan: ListChecks,
  play: Play,
  plus: Plus,
  search: Search,
  send: ArrowUp,
  settings: Settings,
  sidebar: PanelLeft,
  stop: Square,
  terminal: SquareTerminal,
  tool: Wrench,
  workspace: PanelRight,
} as const;

export type IconName = keyof typeof ICONS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      {ICONS[name].map(([tag, attributes]) => h(tag, attributes))}
    </svg>
  );
}
