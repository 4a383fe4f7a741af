// Says that an output is shown in part, and where the whole is.

import { bytes } from "../format";
import type { ToolRow } from "../state/rows";
import type { Truncated } from "../wire/event";

export function Whole({ row }: { row: ToolRow }) {
  const truncated = truncatedOf(row);
  if (!truncated) return null;
  return (
    <p class="under">
      Shown in part: the whole has {bytes(truncated.bytes)}.{" "}
      {truncated.href && (
        <a href={truncated.href} target="_blank" rel="noopener">
          Open it
        </a>
      )}
    </p>
  );
}

/** Extras come from the agent, which is untrusted: a link leads to this server's API or nowhere. */
function truncatedOf(row: ToolRow): Truncated | null {
  const given = row.end?.extras.truncated as Partial<Record<keyof Truncated, unknown>> | null | undefined;
  if (typeof given?.bytes !== "number") return null;
  const href = typeof given.href === "string" && given.href.startsWith("/api/") ? given.href : undefined;
  return { bytes: given.bytes, href };
}
