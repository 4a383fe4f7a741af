// The task that is being written. It outlives its page: whoever comes back from elsewhere finds it as it was, also while it starts; after
// a reload, as far as a browser keeps it.

import { computed, effect, signal } from "@preact/signals";
import { keep } from "../keep";
import { loadLater } from "../ondemand";
import type { Attempt, Chosen } from "./begin";

/** Names of files that are gone, and why, as the end of a sentence. */
export interface Lost {
  names: readonly string[];
  why: string;
}

export const TASK = "greenroom.task";
const ATTEMPT = "greenroom.task.attempt";
/** The names of its files: they themselves do not outlive their page. */
const FILES = "greenroom.task.files";

export const task = signal(keptTask());
export const files = signal<readonly File[]>([]);
/** Files that it came with, and that are nowhere any more: it does not start before somebody has attached them again, or does without. */
export const lost = signal<Lost | null>(null);
export const starting = signal(false);
export const problem = signal<string | null>(null);

const kept = readAttempt(localStorage.getItem(ATTEMPT), task.peek());

if (task.peek()) lose(without(readNames(localStorage.getItem(FILES)), kept?.attempt.names));
const names = computed(() => JSON.stringify([...(lost.value?.names ?? []), ...files.value.map(({ name }) => name)]));
/** What was read of it stands there already; it may be what another tab has noted meanwhile. */
let isRead = true;
effect(() => {
  const text = names.value;
  // Only beside the words that they belong to: where another tab's are kept, the names are of its files.
  if (!isRead && keptTask() === task.peek()) note(text);
});
isRead = false;

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
  isRead = true;
  // Another tab may have written more of it, or sent it.
  if (keptTask() !== task.peek()) take(keptTask());
  if (!task.peek()) lost.value = null;
  isRead = false;
  return () => (problem.value = null);
}

export function write(text: string): void {
  task.value = text;
  keep(TASK, text);
  note(names.peek());
  // Where nothing is left of what was to be started, the same words later are another task. What the page before has begun may have
  // been done long since: it is gone on with only as it was.
  const isGone = text === "" && files.peek().length === 0;
  if (starting.peek()) return;
  if (isGone) lost.value = null;
  else if (kept && attempt.held === kept.attempt) lose(kept.attempt.names);
  if (isGone || attempt.held === kept?.attempt) attempt.current = null;
}

export function attach(more: readonly File[]): void {
  files.value = [...files.peek(), ...more];
  if (!lost.peek()) return;
  const { names, why } = lost.peek()!;
  const still = without(names, more.map(({ name }) => name));
  lost.value = still.length > 0 ? { names: still, why } : null;
}

/** It starts without them: somebody has said so. */
export async function startWithout(): Promise<void> {
  lost.value = null;
  await start();
}

export async function start(): Promise<void> {
  if (starting.peek() || lost.peek() || !task.peek().trim()) return;
  starting.value = true;
  await (await loadLater()).begin();
}

/** What a page before has left of an attempt to start `task`, and what was chosen for it; `null` where that is nothing. */
export function readAttempt(text: string | null, task: string): { attempt: Attempt; chosen: Chosen } | null {
  try {
    const last = JSON.parse(text ?? "") as Attempt;
    if (last.task !== task.trim()) return null;
    const [, attachments] = JSON.parse(last.message?.said ?? "[]") as [string?, string[]?];
    const attempt = { ...last, uploaded: new Map(), attachments, names: last.brought };
    const { task: _, budget_usd, ...options } = JSON.parse(attempt.wish) as Chosen & { task?: string; budget_usd?: number };
    return { attempt, chosen: { ...options, budget: budget_usd?.toString() } };
  } catch {
    return null;
  }
}

/** Words of another tab: what they came with is nowhere here, and what a page before has begun was begun for others. */
function take(words: string): void {
  task.value = words;
  if (kept && attempt.held === kept.attempt) attempt.held = null;
  lost.value = null;
  if (words) lose(without(readNames(localStorage.getItem(FILES)), files.peek().map(({ name }) => name)));
}

function keptTask(): string {
  return localStorage.getItem(TASK) ?? "";
}

function note(text: string): void {
  keep(FILES, text === "[]" ? "" : text);
}

function lose(names: readonly string[] = []): void {
  const all = [...(lost.peek()?.names ?? []), ...names];
  if (names.length > 0) lost.value = { names: all, why: "files do not outlive the page they were attached on" };
}

function readNames(text: string | null): string[] {
  try {
    return (JSON.parse(text ?? "[]") as unknown[]).map(String);
  } catch {
    return [];
  }
}

/** Each of those takes away one of that name: two files may have the same. */
export function without(names: readonly string[], taken: readonly string[] = []): string[] {
  const left = [...names];
  for (const name of taken) if (left.includes(name)) left.splice(left.indexOf(name), 1);
  return left;
}

/** In words for a person, who is asked for them. */
export function lostText({ names, why }: Lost): string {
  const [are, them] = names.length === 1 ? ["is", "it"] : ["are", "them"];
  return `${names.map((name) => `\`${name}\``).join(" and ")} ${are} not here any more: ${why}. Attach ${them} again, or start without ${them}.`;
}
