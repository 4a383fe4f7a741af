// Size limit of a frame. The server rejects longer frames, so none is sent.

import { bytes } from "../format";
import type { ClientRequest } from "./frame";
import { CLIENT_FRAME_LIMIT } from "./generated/kinds";

/** Returns the error text for a request that exceeds the limit. */
export function tooLongError(request: ClientRequest & { id: string }): string | undefined {
  const length = new TextEncoder().encode(JSON.stringify(request)).length;
  if (length <= CLIENT_FRAME_LIMIT) return undefined;
  return `${bytes(length)} exceeds the limit of 1 MiB. Attach it as a file.`;
}
