// Icon of a fork. The first view does without it.

import { h } from "preact";
import GitFork from "lucide/dist/esm/icons/git-fork.mjs";

export function ForkIcon() {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      {GitFork.map(([tag, attributes]) => h(tag, attributes))}
    </svg>
  );
}
