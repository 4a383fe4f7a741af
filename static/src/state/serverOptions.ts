// Server options for new sessions, loaded once.

import { signal } from "@preact/signals";
import { getOptions, type ServerOptions } from "../wire/rest";

/** `null` until the first answer. */
export const options = signal<ServerOptions | null>(null);
/** Returns the agent's name if it tells something: the server offers another one. */
export function notableAgent(agent: string | null | undefined): string | undefined {
  const offered = options.value?.agents ?? [];
  const isOnly = offered.length <= 1 && (offered.length === 0 || offered[0]?.name === agent);
  return agent && !isOnly ? agent : undefined;
}

/** Error of the last attempt. */
export const optionsError = signal<string | null>(null);

export async function loadOptions(): Promise<void> {
  if (options.peek()) return;
  try {
    options.value = await getOptions();
    optionsError.value = null;
  } catch (error) {
    // The caller shows a fallback. The next call retries.
    optionsError.value = (error as Error).message;
  }
}
