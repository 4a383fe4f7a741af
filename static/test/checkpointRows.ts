// Checkpoints and changed files as the server lists them.

import type { ChangeSet, CheckpointEntry, FileChangeRow } from "../src/changes/checkpointsRest";

export function checkpoint(id: string, kind: CheckpointEntry["kind"], more: Partial<CheckpointEntry> = {}): CheckpointEntry {
  return { checkpoint: id, kind, of: null, at: "2026-01-01T10:00:00Z", files: 3, bytes: 9, partial: false, left_out: [], left_out_more: 0, ...more };
}

export function changedFile(path: string, more: Partial<FileChangeRow> = {}): FileChangeRow {
  const facts = { encoded: false, change: "modified", from: null, from_encoded: false, old_mode: "100644", new_mode: "100644", binary: false } as const;
  const content = { added: 1, removed: 1, old_bytes: 4, new_bytes: 4, diff: "@@ -1 +1 @@\n-old\n+new\n", truncated: false };
  return { path, ...facts, ...content, ...more };
}

export function changeSet(files: FileChangeRow[], more: Partial<ChangeSet> = {}): ChangeSet {
  return { from: "start", to: "turn-1", files, more: 0, added: 1, removed: 1, left_out: [], left_out_more: 0, ...more };
}
