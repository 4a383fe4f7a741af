// REST calls on the checkpoints of a session's workspace, and on what changed between them.

import { serverAddress } from "../basePath";
import type { WorkspacePath } from "../files/workspaceFiles";
import type { CheckpointKind, FileChangeKind, LeftOutEntry } from "../wire/generated/types";
import { rawCall } from "../wire/rawCall";
import { call, RestError, sessionPath } from "../wire/rest";

/** Captured workspace, as the list has it. */
export interface CheckpointEntry {
  checkpoint: string;
  kind: CheckpointKind;
  /** Checkpoint that a restore went back to. */
  of: string | null;
  /** Time of the capture, RFC 3339. */
  at: string;
  files: number;
  bytes: number;
  /** True if later changes may be part of it. */
  partial: boolean;
  left_out: LeftOutEntry[];
  /** Number of entries that `left_out` does not list. */
  left_out_more: number;
}

/** Checkpoints of a session, oldest first. */
export interface CheckpointPage {
  offered: boolean;
  /** Reason why checkpoints are not offered. */
  reason: string | null;
  items: CheckpointEntry[];
  /** Description of a damaged store. */
  damage: string | null;
}

/** Two points of a workspace's history. `to` may be `now`. */
export interface ChangeRange {
  from: string;
  to: string;
}

/** Changed file. */
export interface FileChangeRow extends WorkspacePath {
  change: FileChangeKind;
  /** Old path of a moved file. */
  from: string | null;
  from_encoded: boolean;
  /** Mode of git, such as `100755`. `null` without a file on that side. */
  old_mode: string | null;
  new_mode: string | null;
  binary: boolean;
  /** Number of lines. `null` for a binary file. */
  added: number | null;
  removed: number | null;
  old_bytes: number | null;
  new_bytes: number | null;
  /** Hunks of the unified diff. */
  diff: string | null;
  /** True if the answer had no room for the diff. */
  truncated: boolean;
}

/** Difference of two points. */
export interface ChangeSet extends ChangeRange {
  files: FileChangeRow[];
  /** Number of changed files beyond `files`. */
  more: number;
  added: number;
  removed: number;
  left_out: LeftOutEntry[];
  left_out_more: number;
}

/** Outcome of a restore. */
export interface RestoreResult {
  /** New checkpoint. */
  checkpoint: string;
  /** Checkpoint that takes the restore back. */
  before: string;
  restored: number;
  removed: number;
  failed: (WorkspacePath & { reason: string })[];
}

/** Limit of silence in milliseconds. The server first compares the whole workspace. */
const COMPARE_MS = 60_000;

export const listCheckpoints = (session: string, signal: AbortSignal): Promise<CheckpointPage> =>
  call("GET", `${sessionPath(session)}/checkpoints`, { signal, silenceMs: COMPARE_MS });

function rangeQuery({ from, to }: ChangeRange, file?: WorkspacePath): string {
  return new URLSearchParams({ from, to, ...(file && { path: file.path }), ...(file?.encoded && { encoded: "true" }) }).toString();
}

/** Returns what changed, in one file if it is named. */
export const readChanges = (session: string, range: ChangeRange, signal: AbortSignal, file?: WorkspacePath): Promise<ChangeSet> =>
  call("GET", `${sessionPath(session)}/diff?${rangeQuery(range, file)}`, { signal, silenceMs: COMPARE_MS });

/** Returns the changes as `git apply` takes them. */
export async function readPatch(session: string, range: ChangeRange): Promise<Blob> {
  const response = await rawCall(serverAddress(`/api${sessionPath(session)}/patch?${rangeQuery(range)}`), { method: "GET" });
  return response.blob().catch(() => {
    throw new RestError(0, "the patch broke off; a file may be unreadable, so look at the server's log and try again");
  });
}

/** Goes back to a checkpoint, as a whole or with one file. */
export const restoreCheckpoint = (session: string, checkpoint: string, file?: WorkspacePath): Promise<RestoreResult> =>
  call("POST", `${sessionPath(session)}/checkpoints/${encodeURIComponent(checkpoint)}/restore`, {
    body: file ? { path: file.path, encoded: file.encoded } : {},
  });
