// Loader of the lazy bundle.

import { signal } from "@preact/signals";

export type LazyBundle = typeof import("./lazyBundle");

/** `null` until loaded. */
export const lazyBundle = signal<LazyBundle | null>(null);
let pending: Promise<LazyBundle> | null = null;

const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 30_000;
/** Address of a script, without its query. */
const FILE_ADDRESS = /https?:\/\/[^\s?]+\.js/;

/** Loads the bundle once, with retries while the server is unreachable. */
export const loadLazy = (): Promise<LazyBundle> => (pending ??= importWithRetry());

async function importWithRetry(): Promise<LazyBundle> {
  let load = (): Promise<LazyBundle> => import("./lazyBundle");
  for (let wait = FIRST_RETRY_MS, tries = 1; ; wait = Math.min(2 * wait, MAX_RETRY_MS), tries += 1) {
    try {
      return (lazyBundle.value = await load());
    } catch (error) {
      // Browsers remember a failed file by its address until the page is reloaded, and name it in
      // the error. Another query is another address. Safari names none, and so retries in vain.
      const address = FILE_ADDRESS.exec(String(error))?.[0];
      if (address) load = () => import(`${address}?try=${tries}`);
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}
