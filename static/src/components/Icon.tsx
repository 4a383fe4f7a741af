// The icons: those of Lucide that are used, under the names of what they stand for here.

import { h } from "preact";
import {
  Activity,
  ArrowDown,
  ArrowUp,
  Bell,
  BellOff,
  ChevronRight,
  Download,
  Ellipsis,
  FileText,
  Globe,
  Info,
  Keyboard,
  ListChecks,
  Maximize2,
  Menu,
  Monitor,
  Moon,
  Network,
  PanelLeft,
  PanelRight,
  Paperclip,
  Pause,
  Pencil,
  Play,
  Plus,
  Search,
  Square,
  SquareTerminal,
  Sun,
  Wrench,
  X,
} from "lucide";

const ICONS = {
  actors: Network,
  attach: Paperclip,
  bell: Bell,
  chevron: ChevronRight,
  cross: X,
  dark: Moon,
  down: ArrowDown,
  download: Download,
  events: Activity,
  file: FileText,
  globe: Globe,
  info: Info,
  keys: Keyboard,
  light: Sun,
  menu: Menu,
  more: Ellipsis,
  pause: Pause,
  pencil: Pencil,
  plan: ListChecks,
  play: Play,
  plus: Plus,
  search: Search,
  send: ArrowUp,
  sidebar: PanelLeft,
  silent: BellOff,
  stop: Square,
  system: Monitor,
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
