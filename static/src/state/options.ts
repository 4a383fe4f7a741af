// What this server offers for a new session, asked for once.

import { signal } from "@preact/signals";
import type { Session } from "../wire/frame";
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

/** Agent and model of a session, as far as they are not what one gets who chooses neither. While that is not known, nothing is. */
export function unusual({ agent, model }: Session, defaults: Options["defaults"] | undefined): string {
  if (!defaults) return "";
  return [agent !== defaults.agent && agent, model !== defaults.model && model].filter(Boolean).join(" · ");
}
