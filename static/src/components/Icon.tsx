// Icons from Lucide, named by their meaning here.

import { h } from "preact";
import {
  Activity,
  Archive,
  ArrowDown,
  ArrowUp,
  Check,
  ChevronRight,
  Copy,
  Download,
  Ellipsis,
  FileText,
  Globe,
  Info,
  ListChecks,
  Maximize2,
  Menu,
  PanelLeft,
  PanelRight,
  Paperclip,
  Pause,
  Pencil,
  Play,
  Plus,
  Search,
  Settings,
  Square,
  SquareTerminal,
  Wrench,
  X,
} from "lucide";

const ICONS = {
  archive: Archive,
  attach: Paperclip,
  check: Check,
  chevron: ChevronRight,
  copy: Copy,
  cross: X,
  down: ArrowDown,
  download: Download,
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
  widen: Maximize2,
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
