// Note on a partly shown text, with a link to the whole.

import { bytes } from "../format";
import type { TruncationMark } from "../wire/event";

export function TruncationNote({ truncated }: { truncated: TruncationMark | undefined }) {
  if (!truncated) return null;
  return (
    <p class="under">
      Shown in part, {bytes(truncated.bytes)} in all.{" "}
      {truncated.href && (
        <a href={truncated.href} target="_blank" rel="noopener">
          Open all
        </a>
      )}
    </p>
  );
}
