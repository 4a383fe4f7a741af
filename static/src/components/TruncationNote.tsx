// Says that a text is shown in part, and where the whole is.

import { bytes } from "../format";
import type { Truncated } from "../wire/event";

export function Whole({ truncated }: { truncated: Truncated | undefined }) {
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
