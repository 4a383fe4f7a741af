// Memory of what a person has seen of a workspace, for the dots on changed files. Stored in this
// browser, per session.

import { signal } from "@preact/signals";
import { draftKey } from "../state/pendingStorage";
import { storeText } from "../storage";
import { keyOfPath, type FileEntry } from "./workspaceFiles";

/** Number of entries that are remembered across a reload. The oldest ones are forgotten. */
const STORED_ENTRIES = 3000;

/** Stored form: known directories, and pairs of key and stamp. */
interface StoredSeen {
  levels: string[];
  entries: [string, string][];
}

/** Returns a text that differs after each change of the entry. */
const stampOf = ({ etag, modified }: FileEntry): string => etag ?? modified ?? "";

export class SeenFiles {
  private readonly levels: Set<string>;
  private readonly stamps: Map<string, string>;
  /** Number of the last change, for signals that depend on it. */
  private readonly version = signal(0);
  private readonly storageKey: string;

  constructor(session: string) {
    this.storageKey = `${draftKey(session)}.seen`;
    const { levels, entries } = stored(this.storageKey);
    this.levels = new Set(levels);
    this.stamps = new Map(entries);
  }

  /**
   * Takes in the listed entries of a directory. All of them count as seen at the first look.
   * `isWhole`: true if the directory has no further entries.
   */
  listed(level: string, entries: readonly FileEntry[], isWhole: boolean): void {
    if (this.levels.has(level)) return;
    for (const entry of entries) this.stamps.set(keyOfPath(entry), stampOf(entry));
    if (isWhole) this.levels.add(level);
    this.changed();
  }

  /** Reports if an entry is new or differs from what was seen. */
  isChanged(entry: FileEntry, level: string): boolean {
    void this.version.value;
    const seen = this.stamps.get(keyOfPath(entry));
    return seen === undefined ? this.levels.has(level) : seen !== stampOf(entry);
  }

  /** Marks an entry as seen. */
  look(entry: FileEntry): void {
    const key = keyOfPath(entry);
    if (this.stamps.get(key) === stampOf(entry)) return;
    // Deleted first, so that the order is by time.
    this.stamps.delete(key);
    this.stamps.set(key, stampOf(entry));
    this.changed();
  }

  private changed(): void {
    const entries = [...this.stamps].slice(-STORED_ENTRIES);
    // Beyond the limit, a known directory would show its forgotten entries as new.
    const levels = entries.length < this.stamps.size ? [] : [...this.levels];
    storeText(this.storageKey, JSON.stringify({ levels, entries } satisfies StoredSeen));
    this.version.value = this.version.peek() + 1;
  }
}

function stored(key: string): StoredSeen {
  const none = { levels: [], entries: [] };
  try {
    const read = JSON.parse(localStorage.getItem(key) ?? "null") as StoredSeen | null;
    return read && Array.isArray(read.levels) && Array.isArray(read.entries) ? read : none;
  } catch {
    return none;
  }
}
