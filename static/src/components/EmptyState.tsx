// Placeholder of an empty view: its future content and how to get there.

import type { ComponentChildren } from "preact";
import { Icon, type IconName } from "./Icon";

interface EmptyStateProps {
  icon: IconName;
  title: string;
  children: ComponentChildren;
}

export function EmptyState({ icon, title, children }: EmptyStateProps) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      <p class="muted">{children}</p>
    </div>
  );
}
