// State of the Changes tab, per session. Survives a change of the tab.

import { batch, effect, signal } from "@preact/signals";
import { keyOfPath } from "../files/workspaceFiles";
import type { LiveSession } from "../state/liveSession";
import { draftKey } from "../state/pendingStorage";
import { storeText } from "../storage";
import { rangeOf, type ChangeScope } from "./changeScope";
import { listCheckpoints, readChanges, type ChangeSet, type CheckpointPage, type FileChangeRow, type RestoreResult } from "./checkpointsRest";
import { LineComments } from "./lineComments";

/** Open question: one file, or the whole workspace. */
export type RestoreQuestion =
  | { target: "file"; file: FileChangeRow; from: string }
  /** `checkpoint`: first choice of the dialog. */
  | { target: "workspace"; checkpoint: string };

/** Time in milliseconds in which further reasons to reload join. */
const RELOAD_AFTER_MS = 1500;

/** Files that one press adds. A thousand at once would block the page. */
export const FILES_AT_ONCE = 100;

export class ChangesState {
  readonly scope = signal<ChangeScope>("turn");
  readonly list = signal<CheckpointPage | null>(null);
  /** `null`: not read, or nothing to compare. */
  readonly diff = signal<ChangeSet | null>(null);
  readonly isLoading = signal(false);
  readonly problem = signal("");
  readonly dialog = signal<RestoreQuestion | null>(null);
  /** Outcome of the last restore. */
  readonly restored = signal<RestoreResult | null>(null);
  /** Files opened or closed by the user, by key of the path. */
  readonly folds = signal<ReadonlyMap<string, boolean>>(new Map());
  /** Number of files whose diffs are in the page. */
  readonly shownFiles = signal(FILES_AT_ONCE);
  readonly comments: LineComments;
  private readonly seenKey: string;
  /** Newest checkpoint of the last look. Stays while the tab is shown. */
  private seen: string | null = null;
  private reading = new AbortController();
  private live: LiveSession | null = null;
  private reloadTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(readonly session: string) {
    this.comments = new LineComments(session);
    this.seenKey = `${draftKey(session)}.checkpoint`;
  }

  /** Follows the session while the tab is shown. Returns a function that ends this. */
  follow(live: LiveSession): () => void {
    this.live = live;
    this.seen = localStorage.getItem(this.seenKey);
    void this.load();
    let before = workMark(live);
    const stop = effect(() => {
      const mark = workMark(live);
      if (mark !== before) this.loadSoon();
      before = mark;
    });
    return () => {
      stop();
      clearTimeout(this.reloadTimer);
      this.reloadTimer = undefined;
    };
  }

  choose(scope: ChangeScope): void {
    if (scope === this.scope.peek()) return;
    batch(() => {
      this.scope.value = scope;
      this.diff.value = null;
      this.folds.value = new Map();
      this.shownFiles.value = FILES_AT_ONCE;
      this.restored.value = null;
    });
    if (this.live) void this.load();
  }

  /** Reads the list and the changes of the scope. A newer call replaces an earlier one. */
  async load(): Promise<void> {
    this.reading.abort();
    const { signal } = (this.reading = new AbortController());
    this.isLoading.value = true;
    try {
      const list = await listCheckpoints(this.session, signal);
      const facts = { items: list.items, seen: this.seen, isInTurn: this.live?.state.peek().turn != null };
      const range = list.offered ? rangeOf(this.scope.peek(), facts) : null;
      if (!signal.aborted) this.list.value = list;
      const diff = range && (await readChanges(this.session, range, signal));
      if (signal.aborted) return;
      this.diff.value = diff;
      this.problem.value = "";
      this.look(list);
    } catch (error) {
      if (!signal.aborted) this.problem.value = (error as Error).message;
    } finally {
      if (!signal.aborted) this.isLoading.value = false;
    }
  }

  /** Reads the diff of a file for which the answer had no room. */
  async loadFile(file: FileChangeRow): Promise<void> {
    const whole = this.diff.peek();
    if (!whole) return;
    try {
      const { files } = await readChanges(this.session, whole, this.reading.signal, file);
      const found = files.find((one) => keyOfPath(one) === keyOfPath(file) && one.change === file.change);
      if (this.diff.peek() !== whole) return;
      if (!found || found.truncated) this.problem.value = `\`${file.path}\` is too large to show; download the patch`;
      else this.diff.value = { ...whole, files: whole.files.map((one) => (one === file ? found : one)) };
    } catch (error) {
      if (this.diff.peek() === whole) this.problem.value = (error as Error).message;
    }
  }

  fold(file: FileChangeRow, isOpen: boolean): void {
    this.folds.value = new Map(this.folds.peek()).set(foldKey(file), isOpen);
  }

  private loadSoon(): void {
    this.reloadTimer ??= setTimeout(() => {
      this.reloadTimer = undefined;
      void this.load();
    }, RELOAD_AFTER_MS);
  }

  /** Remembers the newest checkpoint. A single turn is no look at all changes. */
  private look({ items }: CheckpointPage): void {
    const scope = this.scope.peek();
    const newest = items.at(-1);
    if (newest && (scope === "seen" || scope === "all")) storeText(this.seenKey, newest.checkpoint);
  }
}

/** Key of a file in the list. A deletion and a creation may have the same path. */
export const foldKey = (file: FileChangeRow): string => `${file.change} ${keyOfPath(file)}`;

/** Returns a text that changes with the end of a tool call, of a turn and of a capture. */
function workMark(live: LiveSession): string {
  const state = live.state.value;
  const ends = state.rows.filter((row) => row.kind === "tool" && row.end !== null).length;
  const turns = state.rows.filter((row) => row.kind === "turn");
  return `${ends} ${turns.length} ${turns.at(-1)?.checkpoint?.checkpoint} ${state.turn?.key}`;
}

const states = new Map<string, ChangesState>();

/** Returns the state of a session's Changes tab. */
export function changesOf(session: string): ChangesState {
  const known = states.get(session) ?? new ChangesState(session);
  states.set(session, known);
  return known;
}
