// Loader of the lazy bundle.

import { signal } from "@preact/signals";

export type LazyBundle = typeof import("./lazyBundle");

/** `null` until loaded. */
export const lazyBundle = signal<LazyBundle | null>(null);
let pending: Promise<LazyBundle> | null = null;

const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 30_000;

/**
 * Loads the bundle once, with retries while the server is unreachable. Some browsers cannot retry a
 * failed file without a page reload.
 */
export const loadLazy = (): Promise<LazyBundle> => (pending ??= importWithRetry());

async function importWithRetry(): Promise<LazyBundle> {
  for (let wait = FIRST_RETRY_MS; ; wait = Math.min(2 * wait, MAX_RETRY_MS)) {
    try {
      return (lazyBundle.value = await import("./lazyBundle"));
    } catch {
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}
