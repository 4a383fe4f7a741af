// What sandboxes take. The server tells CPU time since a sandbox began; how busy it is follows from two looks.

import type { SandboxRow } from "../wire/manage";

export interface Loaded extends SandboxRow {
  /** When the server was asked, milliseconds since the epoch. */
  at: number;
  /** Cores in use between the last two looks; `null` before there were two. */
  cpu: number | null;
}

export function withLoad(rows: readonly SandboxRow[], at: number, before: readonly Loaded[]): Loaded[] {
  return rows.map((row) => {
    const earlier = before.find(({ session }) => session === row.session);
    return { ...row, at, cpu: earlier ? load(row, at, earlier) : null };
  });
}

function load(row: SandboxRow, at: number, earlier: Loaded): number | null {
  if (row.cpu_us === null || earlier.cpu_us === null || at <= earlier.at) return null;
  // A sandbox that was started anew counts from zero again.
  return Math.max(0, (row.cpu_us - earlier.cpu_us) / 1000 / (at - earlier.at));
}
