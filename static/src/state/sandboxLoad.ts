// Load of sandboxes. The server reports total CPU time; two samples give the load.

import type { SandboxRow } from "../wire/lazyRest";

export interface SandboxLoad extends SandboxRow {
  /** Time of the sample, in milliseconds since the epoch. */
  at: number;
  /** Cores in use between the last two samples. `null` before the second. */
  cpu: number | null;
}

export function withLoad(rows: readonly SandboxRow[], at: number, before: readonly SandboxLoad[]): SandboxLoad[] {
  return rows.map((row) => {
    const earlier = before.find(({ session }) => session === row.session);
    return { ...row, at, cpu: earlier ? coresInUse(row, at, earlier) : null };
  });
}

function coresInUse(row: SandboxRow, at: number, earlier: SandboxLoad): number | null {
  if (row.cpu_us === null || earlier.cpu_us === null || at <= earlier.at) return null;
  // A restarted sandbox counts from zero again.
  return Math.max(0, (row.cpu_us - earlier.cpu_us) / 1000 / (at - earlier.at));
}
