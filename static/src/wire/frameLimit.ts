// How long a frame may be. The server takes no longer one, so none is sent.

import { bytes } from "../format";
import type { Wish } from "./frame";

/** In bytes of UTF-8. */
const LONGEST = 1024 * 1024;

/** Why a wish cannot be sent, in words for a person. */
export function tooLong(wish: Wish & { id: string }): string | undefined {
  const length = new TextEncoder().encode(JSON.stringify(wish)).length;
  if (length <= LONGEST) return undefined;
  return `This is ${bytes(length)} long, and 1 MiB can be sent at once. Attach it as a file.`;
}
