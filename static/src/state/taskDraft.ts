// Draft of a new task. Survives navigation, also while starting, and a reload as far as storage
// allows.

import { computed, effect, signal } from "@preact/signals";
import { storeText } from "../storage";
import { loadLazy } from "../loadLazy";
import type { StartAttempt, TaskChoices } from "./startTask";

/** Names of missing files and the reason, as the end of a sentence. */
export interface MissingFiles {
  names: readonly string[];
  reason: string;
}

export const TASK = "greenroom.task";
const ATTEMPT = "greenroom.task.attempt";
/** Key of the file names. The files themselves do not survive a reload. */
const FILES = "greenroom.task.files";

export const task = signal(storedTask());
export const files = signal<readonly File[]>([]);
/** Missing files. The task does not start until they are attached again or dropped by the user. */
export const missing = signal<MissingFiles | null>(null);
export const starting = signal(false);
export const problem = signal<string | null>(null);

const stored = parseAttempt(localStorage.getItem(ATTEMPT), task.peek());

if (task.peek()) addMissing(without(parseNames(localStorage.getItem(FILES)), stored?.attempt.names));
const names = computed(() => JSON.stringify([...(missing.value?.names ?? []), ...files.value.map(({ name }) => name)]));
/** Suppresses writes while loading. Another tab may have stored newer names. */
let isLoading = true;
effect(() => {
  const text = names.value;
  // The names belong to the stored task, which may be another tab's.
  if (!isLoading && storedTask() === task.peek()) storeNames(text);
});
isLoading = false;

/**
 * Attempt to start the task, until its outcome is known. Stored at once, so a retry finds the same
 * session.
 */
export const attempt = {
  value: stored?.attempt ?? null,
  get current(): StartAttempt | null {
    return this.value;
  },
  set current(begun: StartAttempt | null) {
    this.value = begun;
    storeText(ATTEMPT, begun ? attemptJson(begun) : "");
  },
};

/** Choices of the stored attempt. Other choices would start another session. */
export const choices = signal<TaskChoices>(stored?.chosen ?? {});

/** Number of visits to the task's page. */
export const visits = signal(0);

/** Opens the task's page until the returned function is called. */
export function openTask(): () => void {
  visits.value += 1;
  isLoading = true;
  // Another tab may have changed or sent the task.
  if (storedTask() !== task.peek()) adoptTask(storedTask());
  if (!task.peek()) missing.value = null;
  isLoading = false;
  return () => (problem.value = null);
}

export function writeTask(text: string): void {
  task.value = text;
  storeText(TASK, text);
  storeNames(names.peek());
  // An emptied task ends the attempt; the same text later is a new task. An earlier page's attempt
  // may have succeeded, so it continues only unchanged.
  const isGone = text === "" && files.peek().length === 0;
  if (starting.peek()) return;
  if (isGone) missing.value = null;
  else if (stored && attempt.value === stored.attempt) addMissing(stored.attempt.names);
  if (isGone || attempt.value === stored?.attempt) attempt.current = null;
}

export function attachFiles(more: readonly File[]): void {
  files.value = [...files.peek(), ...more];
  if (!missing.peek()) return;
  const { names, reason } = missing.peek()!;
  const still = without(names, more.map(({ name }) => name));
  missing.value = still.length > 0 ? { names: still, reason } : null;
}

/** Starts without the missing files, on request of the user. */
export async function startWithoutFiles(): Promise<void> {
  missing.value = null;
  await start();
}

export async function start(): Promise<void> {
  if (starting.peek() || missing.peek() || !task.peek().trim()) return;
  starting.value = true;
  await (await loadLazy()).startTask();
}

/** Stored form of an attempt. The stored field keeps its former name. */
type StoredAttempt = Omit<StartAttempt, "requestJson"> & { "wish": string };

export function attemptJson({ requestJson, ...rest }: StartAttempt): string {
  return JSON.stringify({ "wish": requestJson, ...rest });
}

/** Parses the stored attempt for `task` and its choices. Returns `null` if there is none. */
export function parseAttempt(text: string | null, task: string): { attempt: StartAttempt; chosen: TaskChoices } | null {
  try {
    const { "wish": requestJson, ...last } = JSON.parse(text ?? "") as StoredAttempt;
    if (last.task !== task.trim()) return null;
    const [, attachments] = JSON.parse(last.message?.said ?? "[]") as [string?, string[]?];
    const attempt = { ...last, requestJson, uploaded: new Map(), attachments, names: last.brought };
    const { task: _, budget_usd, ...options } = JSON.parse(requestJson) as TaskChoices & { task?: string; budget_usd?: number };
    return { attempt, chosen: { ...options, budget: budget_usd?.toString() } };
  } catch {
    return null;
  }
}

/**
 * Adopts the task of another tab. Its files are missing here, and an earlier attempt does not
 * apply.
 */
function adoptTask(text: string): void {
  task.value = text;
  if (stored && attempt.value === stored.attempt) attempt.value = null;
  missing.value = null;
  if (text) addMissing(without(parseNames(localStorage.getItem(FILES)), files.peek().map(({ name }) => name)));
}

function storedTask(): string {
  return localStorage.getItem(TASK) ?? "";
}

function storeNames(text: string): void {
  storeText(FILES, text === "[]" ? "" : text);
}

function addMissing(names: readonly string[] = []): void {
  const all = [...(missing.peek()?.names ?? []), ...names];
  if (names.length > 0) missing.value = { names: all, reason: "a page reload loses attached files" };
}

function parseNames(text: string | null): string[] {
  try {
    return (JSON.parse(text ?? "[]") as unknown[]).map(String);
  } catch {
    return [];
  }
}

/** Removes one entry per taken name. Two files may share a name. */
export function without(names: readonly string[], taken: readonly string[] = []): string[] {
  const left = [...names];
  for (const name of taken) if (left.includes(name)) left.splice(left.indexOf(name), 1);
  return left;
}

/** Returns the request to attach missing files again. */
export function missingText({ names, reason }: MissingFiles): string {
  const [are, them] = names.length === 1 ? ["is", "it"] : ["are", "them"];
  return `${names.map((name) => `\`${name}\``).join(" and ")} ${are} missing: ${reason}. Attach ${them} again or start without ${them}.`;
}
