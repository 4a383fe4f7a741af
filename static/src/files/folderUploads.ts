// Uploads into a directory of the workspace, one after another.

import { signal } from "@preact/signals";
import { newId } from "../id";
import { RestError } from "../wire/rest";
import type { DroppedFile } from "./droppedFiles";
import { rawUpload } from "../wire/rawCall";
import { addressOfFile, childOf, type WorkspacePath } from "./workspaceFiles";

/** Largest number of files of one drop. */
const FILES_LIMIT = 1000;

export interface FolderUpload {
  id: string;
  /** Target in the workspace. */
  target: WorkspacePath;
  file: File;
  /** Share that was sent, from 0 to 1. */
  progress: number;
  problem: string;
  /** True if the problem is an existing file of the name. */
  exists: boolean;
}

export class FolderUploads {
  readonly all = signal<readonly FolderUpload[]>([]);
  /** Problem of a whole drop. */
  readonly problem = signal("");
  private readonly aborts = new Map<string, AbortController>();
  private last: Promise<void> = Promise.resolve();

  /** `onDone` is called after each uploaded file. */
  constructor(
    private readonly session: string,
    private readonly onDone: () => void,
    private readonly send: typeof rawUpload = rawUpload,
  ) {}

  /** Uploads files into a directory. Resolves after the last one. */
  add(directory: WorkspacePath, files: readonly DroppedFile[]): Promise<void> {
    if (files.length > FILES_LIMIT) {
      this.problem.value = `At most ${FILES_LIMIT} files at a time. Upload an archive instead.`;
      return Promise.resolve();
    }
    this.problem.value = "";
    const added = files.map(({ file, path }): FolderUpload => {
      const target = path.split("/").reduce(childOf, directory);
      return { id: newId(), target, file, progress: 0, problem: "", exists: false };
    });
    this.all.value = [...this.all.peek(), ...added];
    for (const upload of added) this.queue(upload, { "If-None-Match": "*" });
    return this.last;
  }

  /** Uploads a file again and replaces the existing one. */
  replace(upload: FolderUpload): void {
    this.change(upload.id, { problem: "", exists: false, progress: 0 });
    this.queue(upload, {});
  }

  /** Cancels an upload, or removes its problem. */
  remove(id: string): void {
    this.aborts.get(id)?.abort();
    this.all.value = this.all.peek().filter((upload) => upload.id !== id);
  }

  private queue(upload: FolderUpload, condition: Record<string, string>): void {
    this.last = this.last.then(() => this.run(upload, condition));
  }

  private async run({ id, target, file }: FolderUpload, condition: Record<string, string>): Promise<void> {
    // Removed while it waited.
    if (!this.all.peek().some((upload) => upload.id === id)) return;
    const abort = new AbortController();
    this.aborts.set(id, abort);
    try {
      const headers = { "Content-Type": "application/octet-stream", ...condition };
      await this.send(addressOfFile(this.session, target), file, { headers, onProgress: (progress) => this.change(id, { progress }), signal: abort.signal });
      this.all.value = this.all.peek().filter((upload) => upload.id !== id);
      this.onDone();
    } catch (error) {
      const exists = error instanceof RestError && error.status === 412;
      this.change(id, { problem: exists ? `\`${target.path}\` already exists` : (error as Error).message, exists });
    } finally {
      this.aborts.delete(id);
    }
  }

  private change(id: string, change: Partial<FolderUpload>): void {
    this.all.value = this.all.peek().map((upload) => (upload.id === id ? { ...upload, ...change } : upload));
  }
}
