// What this server offers for a new session, asked for once.

import { signal } from "@preact/signals";
import { getOptions, type Options } from "../wire/rest";

/** `null` until the first answer. */
export const options = signal<Options | null>(null);

export async function loadOptions(): Promise<void> {
  if (options.peek()) return;
  try {
    options.value = await getOptions();
  } catch {
    // Whatever asked shows its fallback; the next one who asks tries again.
  }
}
