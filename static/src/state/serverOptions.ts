// What this server offers for a new session, asked for once.

import { signal } from "@preact/signals";
import { getOptions, type Options } from "../wire/rest";

/** `null` until the first answer. */
export const options = signal<Options | null>(null);
/** Why there is none, after the last try. */
export const optionsError = signal<string | null>(null);

export async function loadOptions(): Promise<void> {
  if (options.peek()) return;
  try {
    options.value = await getOptions();
    optionsError.value = null;
  } catch (error) {
    // Whatever asked shows its fallback; the next one who asks tries again.
    optionsError.value = (error as Error).message;
  }
}
