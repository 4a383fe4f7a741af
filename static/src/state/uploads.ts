// Files that a person gives to a message: they are uploaded at once, and named in the message when it is sent. Those that are there
// are kept with its draft, and of the others that they are missing.

import { computed, effect, signal, type Signal } from "@preact/signals";
import { newId } from "../id";
import { keep, keepBeside } from "../keep";
import { loadLater } from "../ondemand";
import { filesKey } from "./unsent";

export interface Upload {
  id: string;
  name: string;
  /** In bytes, where that is known. */
  size: number | null;
  /** From 0 to 1. */
  progress: number;
  /** Where it lies in the workspace, once it is there. */
  path?: string;
  problem?: string;
}

/** What is kept of one. */
type Kept = Pick<Upload, "name" | "size" | "path">;

/** Its page had it, and was loaded anew. */
const MISSING = "it was not there yet when this page was loaded";

/** The uploads of one message that is being written. */
export class Uploads {
  readonly all: Signal<readonly Upload[]>;
  private readonly aborts = new Map<string, AbortController>();

  constructor(private readonly session: string) {
    const key = filesKey(session);
    this.all = signal([...read(localStorage, key), ...read(sessionStorage, key)]);
    const there = computed(() => textOf(this.all.value.filter(({ path }) => path !== undefined)));
    // Nobody else brings them, so they are this page's own. A message that was to have one waits for it, also after a reload.
    const missing = computed(() => textOf(this.all.value.filter(({ path }) => path === undefined)));
    effect(() => keep(key, there.value));
    effect(() => keep(key, missing.value, sessionStorage));
    keepBeside(key, () => there.peek());
  }

  get paths(): string[] {
    return this.all.peek().flatMap(({ path }) => path ?? []);
  }

  /** Whether one is on its way still, or has failed: without it the message would not say what it means. */
  get isIncomplete(): boolean {
    return this.all.value.some(({ path }) => path === undefined);
  }

  /** Returns why one of them did not come to lie there; `null` where all did. */
  async add(files: Iterable<File>): Promise<string | null> {
    const problems = await Promise.all([...files].map((file) => this.send(file)));
    return problems.find((problem) => problem !== null) ?? null;
  }

  /** Takes up files that lie in the workspace already. */
  take(paths: readonly string[]): void {
    const files = paths.map((path) => found({ name: path.slice(path.lastIndexOf("/") + 1), size: null, path }));
    this.all.value = [...this.all.peek(), ...files];
  }

  remove(id: string): void {
    this.aborts.get(id)?.abort();
    this.all.value = this.all.value.filter((upload) => upload.id !== id);
  }

  clear(): void {
    this.all.value = [];
  }

  private async send(file: File): Promise<string | null> {
    const id = newId();
    const abort = new AbortController();
    this.aborts.set(id, abort);
    this.all.value = [...this.all.value, { id, name: file.name, size: file.size, progress: 0 }];
    try {
      const { uploadFile } = await loadLater();
      const path = await uploadFile(this.session, file, (progress) => this.change(id, { progress }), abort.signal);
      this.change(id, { path, progress: 1 });
      return null;
    } catch (error) {
      const problem = (error as Error).message;
      this.change(id, { problem });
      return problem;
    } finally {
      this.aborts.delete(id);
    }
  }

  private change(id: string, change: Partial<Upload>): void {
    this.all.value = this.all.value.map((upload) => (upload.id === id ? { ...upload, ...change } : upload));
  }
}

function found(file: Kept): Upload {
  const { path } = file;
  return { id: newId(), progress: path === undefined ? 0 : 1, ...file, ...(path === undefined && { problem: MISSING }) };
}

function textOf(all: readonly Upload[]): string {
  return all.length > 0 ? JSON.stringify(all.map(({ name, size, path }) => ({ name, size, path }))) : "";
}

function read(storage: Storage, key: string): Upload[] {
  try {
    const files: unknown = JSON.parse(storage.getItem(key) ?? "[]");
    return Array.isArray(files) ? (files as Kept[]).map(found) : [];
  } catch {
    return [];
  }
}

const open = new Map<string, Uploads>();

/** Those of a session's composer: kept while the person looks at another session. */
export function uploadsOf(session: string): Uploads {
  const known = open.get(session);
  if (known) return known;
  const fresh = new Uploads(session);
  open.set(session, fresh);
  return fresh;
}
