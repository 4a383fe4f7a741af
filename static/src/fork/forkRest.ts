// REST call for a fork.

import type { Session } from "../wire/frame";
import { call, sessionPath } from "../wire/rest";

/** Files of a fork: the checkpoint's, the present ones of the forked session, or none. */
export type ForkFileChoice = "checkpoint" | "now" | "none";

/** Options of a fork. The server chooses omitted ones. */
export interface ForkOptions {
  /** Number of the newest event that both sessions have. */
  at?: number;
  /** First message of the new session. */
  message?: string;
  files?: ForkFileChoice;
}

/** Error code of a fork whose checkpoint is missing or damaged. */
export const NO_CHECKPOINT = "no_checkpoint";

/** Forks a session and returns the new one. The same `key` leads to the same session. */
export const forkSession = (id: string, options: ForkOptions, key: string): Promise<Session> =>
  call("POST", `${sessionPath(id)}/fork`, { body: options, headers: { "Idempotency-Key": key } });
