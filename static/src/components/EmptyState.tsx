// What stands where nothing is yet: what will be here, and how it comes.

import type { ComponentChildren } from "preact";
import { Icon, type IconName } from "./Icon";

interface Props {
  icon: IconName;
  title: string;
  children: ComponentChildren;
}

export function Empty({ icon, title, children }: Props) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      <p class="muted">{children}</p>
    </div>
  );
}
