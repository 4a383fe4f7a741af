// State of the Files tab, per session. Survives a change of the tab.

import { effect, signal, type Signal } from "@preact/signals";
import type { LiveSession } from "../state/liveSession";
import { FileSearch } from "./fileSearch";
import { FileTree } from "./fileTree";
import { FolderUploads } from "./folderUploads";
import { OpenedFile } from "./openedFile";
import { keyOfPath, parentOf, type FileEntry, type WorkspacePath } from "./workspaceFiles";

/** Dialog of the Files tab. `directory`: place of a new entry. */
export type FileDialogRequest =
  | { action: "new_file" | "new_folder"; directory: WorkspacePath }
  | { action: "move" | "delete"; entry: FileEntry };

/** Tools whose results may have changed files. */
const WRITING_TOOLS = ["run", "write", "edit", "tool"];

export class FilesState {
  readonly tree: FileTree;
  readonly search: FileSearch;
  readonly uploads: FolderUploads;
  readonly opened: Signal<OpenedFile | null> = signal(null);
  readonly dialog: Signal<FileDialogRequest | null> = signal(null);

  constructor(readonly session: string) {
    this.tree = new FileTree(session);
    this.search = new FileSearch(session);
    this.uploads = new FolderUploads(session, () => this.tree.refreshSoon());
  }

  /** Shows a file and marks it as seen. */
  show(entry: FileEntry): void {
    this.tree.active.value = keyOfPath(entry);
    this.tree.seen.look(entry);
    const before = this.opened.peek();
    if (before && keyOfPath(before.entry) === keyOfPath(entry)) return before.listed(entry.etag);
    before?.close();
    const file = new OpenedFile(this.session, entry);
    // The person's own change is no news.
    file.onSaved = (etag) => {
      this.tree.seen.look({ ...entry, etag });
      this.tree.refreshSoon();
    };
    this.opened.value = file;
  }

  closeFile(): void {
    this.opened.peek()?.close();
    this.opened.value = null;
  }

  /** Directory of the active row, for new entries. */
  activeDirectory(): WorkspacePath {
    const active = this.tree.active.peek();
    const row = this.tree.rows.peek().find(({ key }) => key === active);
    if (row?.kind !== "entry") return { path: "", encoded: false };
    return row.entry.kind === "directory" ? row.entry : parentOf(row.entry);
  }

  /**
   * Follows the session while the tab is shown: reloads the tree after work that may have changed
   * files. Returns a function that ends this.
   */
  follow(live: LiveSession): () => void {
    let ends = finishedTools(live);
    const stopTools = effect(() => {
      const now = finishedTools(live);
      if (now !== ends) this.tree.refreshSoon();
      ends = now;
    });
    // The tree shows a new tag of the opened file.
    const stopOpened = effect(() => {
      const file = this.opened.value;
      const row = file && this.tree.rows.value.find(({ key }) => key === keyOfPath(file.entry));
      if (row?.kind !== "entry") return;
      file?.listed(row.entry.etag);
      this.tree.seen.look(row.entry);
    });
    void this.tree.refresh();
    return () => {
      stopTools();
      stopOpened();
    };
  }
}

/** Returns a text that differs after each finished tool that may have changed files. */
function finishedTools(live: LiveSession): string {
  const rows = live.state.value.rows.filter((row) => row.kind === "tool" && row.end !== null && WRITING_TOOLS.includes(row.name ?? ""));
  return `${rows.length} ${rows.at(-1)?.key}`;
}

const states = new Map<string, FilesState>();

/** Returns the state of a session's Files tab. */
export function filesOf(session: string): FilesState {
  const known = states.get(session) ?? new FilesState(session);
  states.set(session, known);
  return known;
}
