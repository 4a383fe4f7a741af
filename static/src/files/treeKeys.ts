// Keys of the tree, as the ARIA pattern "tree view" describes them. Pure.

import type { EntryRow, TreeRow } from "./fileTree";

export type TreeMove = { to: TreeRow } | { toggle: EntryRow } | { choose: TreeRow };

/** Returns the effect of a key on the active row. `null`: the tree ignores the key. */
export function moveInTree(rows: readonly TreeRow[], active: string, key: string): TreeMove | null {
  const at = rows.findIndex((row) => row.key === active);
  const row = rows[at];
  const go = (index: number): TreeMove | null => (rows[index] ? { to: rows[index] } : null);
  switch (key) {
    case "ArrowDown":
      return go(at + 1);
    case "ArrowUp":
      return go(at - 1);
    case "Home":
      return go(0);
    case "End":
      return go(rows.length - 1);
    case "ArrowRight":
      if (row?.kind !== "entry" || row.entry.kind !== "directory") return null;
      if (!row.isOpen) return { toggle: row };
      return (rows[at + 1]?.depth ?? 0) > row.depth ? go(at + 1) : null;
    case "ArrowLeft": {
      if (row?.kind === "entry" && row.isOpen) return { toggle: row };
      const parent = rows.slice(0, Math.max(0, at)).findLastIndex(({ depth }) => depth < (row?.depth ?? 0));
      return go(parent);
    }
    case "Enter":
    case " ":
      if (!row) return null;
      return row.kind === "entry" && row.entry.kind === "directory" ? { toggle: row } : { choose: row };
    default:
      return null;
  }
}

/** Time after which typing starts a new word, in milliseconds. */
const TYPEAHEAD_MS = 700;

/** Search for a row by the first letters of its name. */
export class TreeTypeahead {
  private typed = "";
  private lastAt = 0;

  /** Returns the next row whose name begins with the typed letters. */
  find(rows: readonly TreeRow[], active: string, letter: string, at: number): TreeRow | undefined {
    this.typed = at - this.lastAt > TYPEAHEAD_MS ? letter : this.typed + letter;
    this.lastAt = at;
    // A repeated letter walks through the rows.
    const word = [...this.typed].every((one) => one === this.typed[0]) ? this.typed.slice(0, 1) : this.typed;
    const here = rows.findIndex((row) => row.key === active);
    const start = word.length > 1 ? Math.max(0, here) : here + 1;
    const inOrder = [...rows.slice(start), ...rows.slice(0, start)];
    return inOrder.find((row) => row.kind === "entry" && row.entry.name.toLowerCase().startsWith(word.toLowerCase()));
  }
}
