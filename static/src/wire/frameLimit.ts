// Size limit of a frame. The server rejects longer frames, so none is sent.

import { bytes } from "../format";
import type { ClientRequest } from "./frame";

/** Limit in bytes of UTF-8. */
const MAX_FRAME_BYTES = 1024 * 1024;

/** Returns the error text for a request that exceeds the limit. */
export function tooLongError(request: ClientRequest & { id: string }): string | undefined {
  const length = new TextEncoder().encode(JSON.stringify(request)).length;
  if (length <= MAX_FRAME_BYTES) return undefined;
  return `${bytes(length)} exceeds the limit of 1 MiB. Attach it as a file.`;
}
