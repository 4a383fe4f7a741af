// Files of a message. They upload at once and are named in the sent message. Uploaded ones are
// stored with the draft, others are marked as missing.

import { computed, effect, signal, type Signal } from "@preact/signals";
import { newId } from "../id";
import { storeText, keepAcrossTabs } from "../storage";
import { loadLazy } from "../loadLazy";
import { filesKey } from "./pendingStorage";

export interface FileUpload {
  id: string;
  name: string;
  /** Size in bytes, if known. */
  size: number | null;
  /** Progress from 0 to 1. */
  progress: number;
  /** Path in the workspace, once uploaded. */
  path?: string;
  problem?: string;
}

/** Stored part of an upload. */
type StoredUpload = Pick<FileUpload, "name" | "size" | "path">;

/** Problem of an upload interrupted by a reload. */
const NOT_UPLOADED = "interrupted by a page reload";

/** Uploads of one message draft. */
export class UploadList {
  readonly all: Signal<readonly FileUpload[]>;
  private readonly aborts = new Map<string, AbortController>();

  constructor(private readonly session: string) {
    const key = filesKey(session);
    this.all = signal([...read(localStorage, key), ...read(sessionStorage, key)]);
    const there = computed(() => textOf(this.all.value.filter(({ path }) => path !== undefined)));
    // Missing files belong to this tab only. The message waits for them, also after a reload.
    const missing = computed(() => textOf(this.all.value.filter(({ path }) => path === undefined)));
    effect(() => storeText(key, there.value));
    effect(() => storeText(key, missing.value, sessionStorage));
    keepAcrossTabs(key, () => there.peek());
  }

  get paths(): string[] {
    return this.all.peek().flatMap(({ path }) => path ?? []);
  }

  /** Reports if an upload is unfinished or failed. The message would be incomplete. */
  get isIncomplete(): boolean {
    return this.all.value.some(({ path }) => path === undefined);
  }

  /** Uploads files for a model. Returns the first problem, or `null`. */
  async add(files: Iterable<File>, model: string | null): Promise<string | null> {
    const problems = await Promise.all([...files].map((file) => this.send(file, model)));
    return problems.find((problem) => problem !== null) ?? null;
  }

  /** Adds files that are already in the workspace. */
  take(paths: readonly string[]): void {
    const files = paths.map((path) => fromStored({ name: path.slice(path.lastIndexOf("/") + 1), size: null, path }));
    this.all.value = [...this.all.peek(), ...files];
  }

  remove(id: string): void {
    this.aborts.get(id)?.abort();
    this.all.value = this.all.value.filter((upload) => upload.id !== id);
  }

  clear(): void {
    this.all.value = [];
  }

  private async send(file: File, model: string | null): Promise<string | null> {
    const id = newId();
    const abort = new AbortController();
    this.aborts.set(id, abort);
    this.all.value = [...this.all.value, { id, name: file.name, size: file.size, progress: 0 }];
    try {
      const { uploadAttachment } = await loadLazy();
      const uploaded = await uploadAttachment(this.session, file, model, (progress) => this.change(id, { progress }), abort.signal);
      this.change(id, { ...uploaded, progress: 1 });
      return null;
    } catch (error) {
      const problem = (error as Error).message;
      this.change(id, { problem });
      return problem;
    } finally {
      this.aborts.delete(id);
    }
  }

  private change(id: string, change: Partial<FileUpload>): void {
    this.all.value = this.all.value.map((upload) => (upload.id === id ? { ...upload, ...change } : upload));
  }
}

function fromStored(file: StoredUpload): FileUpload {
  const { path } = file;
  return { id: newId(), progress: path === undefined ? 0 : 1, ...file, ...(path === undefined && { problem: NOT_UPLOADED }) };
}

function textOf(all: readonly FileUpload[]): string {
  return all.length > 0 ? JSON.stringify(all.map(({ name, size, path }) => ({ name, size, path }))) : "";
}

function read(storage: Storage, key: string): FileUpload[] {
  try {
    const files: unknown = JSON.parse(storage.getItem(key) ?? "[]");
    return Array.isArray(files) ? (files as StoredUpload[]).map(fromStored) : [];
  } catch {
    return [];
  }
}

const open = new Map<string, UploadList>();

/** Returns the uploads of a session's composer, which survive navigation. */
export function uploadsOf(session: string): UploadList {
  const existing = open.get(session);
  if (existing) return existing;
  const created = new UploadList(session);
  open.set(session, created);
  return created;
}
