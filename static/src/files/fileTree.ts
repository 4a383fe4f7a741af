// Tree of a workspace. Loads by level: a directory is read when it is opened.

import { computed, signal } from "@preact/signals";
import { RestError } from "../wire/rest";
import { SeenFiles } from "./seenFiles";
import { keyOfPath, listFiles, parentOf, WORKSPACE_ROOT, type FileEntry, type FilePage, type ListRequest, type WorkspacePath } from "./workspaceFiles";

/** Entries of one request. */
const PAGE = 500;
/** Time between two reloads after events, in milliseconds. */
const REFRESH_EVERY_MS = 700;

interface TreeLevel {
  entries: FileEntry[];
  /** Cursor of further entries. `null`: none. */
  cursor: string | null;
  loading: boolean;
  problem: string;
}

/** Row of the tree, from top to bottom. */
export type TreeRow =
  | {
      kind: "entry";
      key: string;
      entry: FileEntry;
      /** 1 for entries of the workspace itself. */
      depth: number;
      isOpen: boolean;
      /** True for an entry that changed since the person looked. */
      isChanged: boolean;
      /** Place among the entries of the directory, from 1. */
      position: number;
      /** Number of those entries. -1: not all are loaded. */
      siblings: number;
    }
  /** Note below the entries of a directory. */
  | { kind: "loading" | "empty" | "more"; key: string; level: WorkspacePath; depth: number }
  | { kind: "problem"; key: string; level: WorkspacePath; depth: number; text: string };

export type EntryRow = Extract<TreeRow, { kind: "entry" }>;

export type ListFunction = (request: ListRequest) => Promise<FilePage>;

export class FileTree {
  private readonly levels = signal<ReadonlyMap<string, TreeLevel>>(new Map());
  private readonly open = signal<ReadonlyMap<string, WorkspacePath>>(new Map([[keyOfPath(WORKSPACE_ROOT), WORKSPACE_ROOT]]));
  private refreshTimer: ReturnType<typeof setTimeout> | undefined;
  private closed = false;
  private isStale = false;
  private reload: Promise<void> | undefined;
  readonly seen: SeenFiles;
  /** True if all sessions of the server use this workspace. */
  readonly isShared = signal(false);
  /** Key of the row that arrow keys start from. */
  readonly active = signal("");
  readonly rows = computed((): TreeRow[] => this.rowsOf(WORKSPACE_ROOT, 1));

  constructor(
    session: string,
    private readonly list: ListFunction = (request) => listFiles(session, request),
  ) {
    this.seen = new SeenFiles(session);
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.refreshTimer);
  }

  toggle(entry: FileEntry): void {
    const key = keyOfPath(entry);
    const open = new Map(this.open.peek());
    if (open.delete(key)) {
      this.open.value = open;
      return;
    }
    this.open.value = open.set(key, entry);
    this.seen.look(entry);
    void this.load(entry);
  }

  /** Opens all directories above an entry. Resolves after they have loaded. */
  async reveal(entry: WorkspacePath): Promise<void> {
    const open = new Map(this.open.peek());
    const missing: WorkspacePath[] = [];
    for (let level = parentOf(entry); level.path !== ""; level = parentOf(level)) {
      if (!open.has(keyOfPath(level))) missing.push(level);
      open.set(keyOfPath(level), level);
    }
    this.open.value = open;
    this.active.value = keyOfPath(entry);
    await Promise.all(missing.map((level) => this.load(level)));
  }

  /** Loads the next entries of a directory. */
  async more(level: WorkspacePath): Promise<void> {
    const before = this.levels.peek().get(keyOfPath(level));
    if (!before || before.loading || before.cursor === null) return;
    this.put(level, { ...before, loading: true });
    try {
      const page = await this.list({ directory: level, cursor: before.cursor, limit: PAGE });
      const entries = [...before.entries, ...page.items];
      this.seen.listed(keyOfPath(level), entries, page.next_cursor === null);
      this.put(level, { entries, cursor: page.next_cursor, loading: false, problem: "" });
    } catch (error) {
      this.put(level, { ...before, loading: false, problem: (error as Error).message });
    }
  }

  /** Reloads the shown directories, after a short time in which further calls join. */
  refreshSoon(): void {
    this.refreshTimer ??= setTimeout(() => {
      this.refreshTimer = undefined;
      void this.refresh();
    }, REFRESH_EVERY_MS);
  }

  /** Reloads the shown directories. One reload runs at a time; calls meanwhile cause one more. */
  refresh(): Promise<void> {
    this.isStale = true;
    this.reload ??= this.reloadUntilFresh().finally(() => (this.reload = undefined));
    return this.reload;
  }

  private async reloadUntilFresh(): Promise<void> {
    while (this.isStale && !this.closed) {
      this.isStale = false;
      await Promise.all([...this.open.peek().values()].map((level) => this.load(level)));
    }
  }

  /** Loads the entries of a directory, at least as many as are shown. */
  async load(level: WorkspacePath): Promise<void> {
    const key = keyOfPath(level);
    const before = this.levels.peek().get(key);
    this.put(level, { entries: before?.entries ?? [], cursor: before?.cursor ?? null, loading: true, problem: "" });
    try {
      const entries: FileEntry[] = [];
      let cursor: string | null = null;
      do {
        const page: FilePage = await this.list({ directory: level, cursor, limit: PAGE });
        entries.push(...page.items);
        cursor = page.next_cursor;
        if (level.path === "") this.isShared.value = page.shared === true;
      } while (cursor !== null && entries.length < (before?.entries.length ?? 0));
      this.seen.listed(key, entries, cursor === null);
      this.put(level, { entries, cursor, loading: false, problem: "" });
    } catch (error) {
      if (error instanceof RestError && error.isNotFound && level.path !== "") return this.forget(level);
      this.put(level, { entries: before?.entries ?? [], cursor: null, loading: false, problem: (error as Error).message });
    }
  }

  /** Closes a directory that no longer exists. */
  private forget(level: WorkspacePath): void {
    const key = keyOfPath(level);
    const open = new Map(this.open.peek());
    open.delete(key);
    this.open.value = open;
    const levels = new Map(this.levels.peek());
    levels.delete(key);
    this.levels.value = levels;
  }

  private put(level: WorkspacePath, content: TreeLevel): void {
    if (!this.closed) this.levels.value = new Map(this.levels.peek()).set(keyOfPath(level), content);
  }

  private rowsOf(directory: WorkspacePath, depth: number): TreeRow[] {
    const levelKey = keyOfPath(directory);
    const level = this.levels.value.get(levelKey);
    if (!level) return [];
    const siblings = level.cursor === null ? level.entries.length : -1;
    const rows = [...level.entries].sort(directoriesFirst).flatMap((entry, n): TreeRow[] => {
      const key = keyOfPath(entry);
      const isOpen = entry.kind === "directory" && this.open.value.has(key);
      const below = isOpen ? this.rowsOf(entry, depth + 1) : [];
      const hides = !isOpen && entry.kind === "directory" && this.hidesChange(key);
      const isChanged = hides || this.seen.isChanged(entry, levelKey);
      return [{ kind: "entry", key, entry, depth, isOpen, isChanged, position: n + 1, siblings }, ...below];
    });
    const note = { level: directory, depth };
    if (level.problem) rows.push({ kind: "problem", key: `${levelKey} problem`, text: level.problem, ...note });
    else if (level.loading && level.entries.length === 0) rows.push({ kind: "loading", key: `${levelKey} loading`, ...note });
    else if (level.cursor !== null) rows.push({ kind: "more", key: `${levelKey} more`, ...note });
    else if (level.entries.length === 0) rows.push({ kind: "empty", key: `${levelKey} empty`, ...note });
    return rows;
  }

  /** Reports if a closed directory has a changed entry, as far as it was loaded. */
  private hidesChange(key: string): boolean {
    const level = this.levels.value.get(key);
    return level?.entries.some((entry) => this.seen.isChanged(entry, key) || (entry.kind === "directory" && this.hidesChange(keyOfPath(entry)))) ?? false;
  }
}

function directoriesFirst(a: FileEntry, b: FileEntry): number {
  return Number(b.kind === "directory") - Number(a.kind === "directory") || a.name.localeCompare(b.name, undefined, { numeric: true });
}
