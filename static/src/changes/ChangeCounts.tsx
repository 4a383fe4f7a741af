// Number of added and removed lines, and the kind of a change.

import type { FileChangeKind } from "../wire/generated/types";

/** Words for the kinds. A plain change needs none. */
export const CHANGE_NAMES: Record<FileChangeKind, string> = { created: "new", modified: "", deleted: "deleted", moved: "renamed" };

interface ChangeCountsProps {
  added: number | null | undefined;
  removed: number | null | undefined;
}

export function ChangeCounts({ added, removed }: ChangeCountsProps) {
  if (added == null && removed == null) return <span class="change-counts">binary</span>;
  // A renamed file, or another mode.
  if (!added && !removed) return null;
  const [plus, minus] = [added, removed].map((count) => (count ?? 0).toLocaleString("en"));
  return (
    <span class="change-counts">
      <span class="added">
        <span aria-hidden="true">+{plus}</span>
        <span class="visually-hidden">{plus} added,</span>
      </span>{" "}
      <span class="removed">
        <span aria-hidden="true">−{minus}</span>
        <span class="visually-hidden">{minus} removed</span>
      </span>
    </span>
  );
}
