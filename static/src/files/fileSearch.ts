// Search for files by a part of the name or by a glob, below the whole workspace.

import { signal } from "@preact/signals";
import { listFiles, WORKSPACE_ROOT, type FileEntry } from "./workspaceFiles";
import type { ListFunction } from "./fileTree";

/** Pause in typing after which a search starts, in milliseconds. */
const PAUSE_MS = 250;
const PAGE = 200;

export interface SearchResult {
  text: string;
  entries: FileEntry[];
  searching: boolean;
  /** Cursor of further entries. `null`: none. */
  cursor: string | null;
  problem: string;
}

export class FileSearch {
  /** `null`: no search. */
  readonly result = signal<SearchResult | null>(null);
  private timer: ReturnType<typeof setTimeout> | undefined;
  private abort = new AbortController();

  constructor(
    session: string,
    private readonly list: ListFunction = (request) => listFiles(session, request),
  ) {}

  /** Searches after a pause. An empty text ends the search. */
  type(text: string): void {
    this.cancel();
    const pattern = text.trim();
    if (pattern === "") {
      this.result.value = null;
      return;
    }
    this.result.value = { text: pattern, entries: this.result.peek()?.entries ?? [], searching: true, cursor: null, problem: "" };
    this.timer = setTimeout(() => void this.run({ text: pattern, entries: [], searching: true, cursor: null, problem: "" }), PAUSE_MS);
  }

  /** Continues the search. */
  more(): void {
    const result = this.result.peek();
    if (result && !result.searching && result.cursor !== null) void this.run(result);
  }

  cancel(): void {
    clearTimeout(this.timer);
    this.abort.abort();
    this.abort = new AbortController();
  }

  private async run(from: SearchResult): Promise<void> {
    const { signal: stop } = this.abort;
    let { entries, cursor } = from;
    try {
      // The server answers after a limited time, perhaps without an entry so far.
      do {
        this.result.value = { ...from, entries, cursor, searching: true, problem: "" };
        const page = await this.list({ directory: WORKSPACE_ROOT, cursor, limit: PAGE, search: from.text, signal: stop });
        if (stop.aborted) return;
        entries = [...entries, ...page.items];
        cursor = page.next_cursor;
      } while (cursor !== null && entries.length === from.entries.length);
      this.result.value = { text: from.text, entries, searching: false, cursor, problem: "" };
    } catch (error) {
      if (!stop.aborted) this.result.value = { ...from, entries, cursor: null, searching: false, problem: (error as Error).message };
    }
  }
}
