// What is not there at first sight, on its way.

import { signal } from "@preact/signals";

export type Later = typeof import("./later");

/** `null` until it is there. */
export const later = signal<Later | null>(null);
let coming: Promise<Later> | null = null;

const AGAIN_MS = 1000;
const LAST_MS = 30_000;

/** Comes as soon as the server can be reached. Of some browsers a page must be loaded anew that could not get a file once. */
export const loadLater = (): Promise<Later> => (coming ??= untilItComes());

async function untilItComes(): Promise<Later> {
  for (let wait = AGAIN_MS; ; wait = Math.min(2 * wait, LAST_MS)) {
    try {
      return (later.value = await import("./later"));
    } catch {
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}
