// Files that a person gives to a message: they are uploaded at once, and named in the message when it is sent. Those that are there
// are kept with its draft.

import { computed, effect, signal, type Signal } from "@preact/signals";
import { newId } from "../id";
import { keep, keepBeside } from "../keep";
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

/** One that lies in the workspace. */
type There = Pick<Upload, "name" | "size"> & { path: string };

/** The uploads of one message that is being written. */
export class Uploads {
  readonly all: Signal<readonly Upload[]>;
  private readonly aborts = new Map<string, AbortController>();

  constructor(private readonly session: string) {
    this.all = signal(read(filesKey(session)).map(there));
    const finished = computed(() => {
      const files = this.all.value.flatMap(({ name, size, path }) => (path === undefined ? [] : { name, size, path }));
      return files.length > 0 ? JSON.stringify(files) : "";
    });
    effect(() => keep(filesKey(session), finished.value));
    keepBeside(filesKey(session), () => finished.peek());
  }

  get paths(): string[] {
    return this.all.peek().flatMap(({ path }) => path ?? []);
  }

  /** Whether one is on its way still, or has failed: without it the message would not say what it means. */
  get isIncomplete(): boolean {
    return this.all.value.some(({ path }) => path === undefined);
  }

  add(files: Iterable<File>): void {
    for (const file of files) void this.send(file);
  }

  /** Takes up files that lie in the workspace already. */
  take(paths: readonly string[]): void {
    const files = paths.map((path) => there({ name: path.slice(path.lastIndexOf("/") + 1), size: null, path }));
    this.all.value = [...this.all.peek(), ...files];
  }

  remove(id: string): void {
    this.aborts.get(id)?.abort();
    this.all.value = this.all.value.filter((upload) => upload.id !== id);
  }

  clear(): void {
    this.all.value = [];
  }

  private async send(file: File): Promise<void> {
    const id = newId();
    const abort = new AbortController();
    this.aborts.set(id, abort);
    this.all.value = [...this.all.value, { id, name: file.name, size: file.size, progress: 0 }];
    try {
      const { uploadFile } = await import("../later");
      const path = await uploadFile(this.session, file, (progress) => this.change(id, { progress }), abort.signal);
      this.change(id, { path, progress: 1 });
    } catch (error) {
      this.change(id, { problem: (error as Error).message });
    } finally {
      this.aborts.delete(id);
    }
  }

  private change(id: string, change: Partial<Upload>): void {
    this.all.value = this.all.value.map((upload) => (upload.id === id ? { ...upload, ...change } : upload));
  }
}

function there(file: There): Upload {
  return { id: newId(), progress: 1, ...file };
}

function read(key: string): There[] {
  try {
    const files: unknown = JSON.parse(localStorage.getItem(key) ?? "[]");
    return Array.isArray(files) ? (files as There[]) : [];
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
