// Trees of sessions and their forks. Pure.

import type { Session } from "../wire/frame";

/** Session with its forks, newest activity first. */
export interface SessionTree {
  session: Session;
  forks: SessionTree[];
}

/**
 * Returns the trees of sessions, each with its newest session. `sorted`: newest activity first, and
 * so are the trees. A session whose parent is not among them stands at the top.
 */
export function treesOf(sorted: readonly Session[]): { tree: SessionTree; newest: Session }[] {
  const trees = new Map<string, SessionTree>(sorted.map((session) => [session.id, { session, forks: [] }]));
  const attached = new Set<SessionTree>();
  const roots: { tree: SessionTree; newest: Session }[] = [];
  for (const newest of sorted) {
    const path = new Set<SessionTree>();
    for (let tree = trees.get(newest.id); tree && !attached.has(tree); ) {
      attached.add(tree);
      path.add(tree);
      const above = trees.get(tree.session.parent?.id ?? "");
      // An imported record may name a descendant.
      if (above && !path.has(above)) above.forks.push(tree);
      else roots.push({ tree, newest });
      tree = above;
    }
  }
  return roots;
}
