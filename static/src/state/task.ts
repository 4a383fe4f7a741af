// The task that is being written. It outlives its page: whoever comes back from elsewhere finds it as it was, also while it starts; after
// a reload, as far as a browser keeps it.

import { signal } from "@preact/signals";
import { keep } from "../keep";
import { loadLater } from "../ondemand";
import type { Attempt, Chosen } from "./begin";

export const TASK = "greenroom.task";
const ATTEMPT = "greenroom.task.attempt";

export const task = signal(localStorage.getItem(TASK) ?? "");
export const files = signal<readonly File[]>([]);
export const starting = signal(false);
export const problem = signal<string | null>(null);

const kept = readAttempt(localStorage.getItem(ATTEMPT), task.peek());

/** The attempt to start it, while nothing is known to have come of it. Kept at once: its key leads to the same session again. */
export const attempt = {
  held: kept?.attempt ?? null,
  get current(): Attempt | null {
    return this.held;
  },
  set current(begun: Attempt | null) {
    this.held = begun;
    keep(ATTEMPT, begun ? JSON.stringify(begun) : "");
  },
};

/** After a reload what was chosen for that attempt: anything else would be another session. */
export const chosen = signal<Chosen>(kept?.chosen ?? {});

/** How often the page of the task was opened. */
export const visits = signal(0);

/** Its page is open, until the returned function is called. */
export function openTask(): () => void {
  visits.value += 1;
  // Another tab may have written more of it, or sent it.
  task.value = localStorage.getItem(TASK) ?? "";
  return () => (problem.value = null);
}

export function write(text: string): void {
  task.value = text;
  keep(TASK, text);
  // Where nothing is left of what was to be started, the same words later are another task. What the page before has begun may have
  // been done long since: it is gone on with only as it was.
  const isGone = text === "" && files.peek().length === 0;
  if ((isGone || attempt.held === kept?.attempt) && !starting.peek()) attempt.current = null;
}

export function attach(more: readonly File[]): void {
  files.value = [...files.peek(), ...more];
}

export async function start(): Promise<void> {
  if (starting.peek() || !task.peek().trim()) return;
  starting.value = true;
  await (await loadLater()).begin();
}

/** What a page before has left of an attempt to start `task`, and what was chosen for it; `null` where that is nothing. */
export function readAttempt(text: string | null, task: string): { attempt: Attempt; chosen: Chosen } | null {
  try {
    const last = JSON.parse(text ?? "") as Attempt;
    if (last.task !== task.trim()) return null;
    const [, attachments] = JSON.parse(last.message?.said ?? "[]") as [string?, string[]?];
    const attempt = { ...last, uploaded: new Map(), attachments };
    const { task: _, budget_usd, ...options } = JSON.parse(attempt.wish) as Chosen & { task?: string; budget_usd?: number };
    return { attempt, chosen: { ...options, budget: budget_usd?.toString() } };
  } catch {
    return null;
  }
}
