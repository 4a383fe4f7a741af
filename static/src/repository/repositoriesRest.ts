// REST calls on repositories: those to start from, and the one of a session.

import { call, sessionPath } from "../wire/rest";

/** Directory of the server's host with repositories on its first level. */
export interface RepositorySource {
  /** Absolute path of the directory. */
  path: string;
  /** Names of the repositories in it. */
  repositories: string[];
}

/** Repository of an earlier session. */
export interface RecentRepository {
  /** Address or path, without credentials. */
  url: string;
  /** Branch, tag or commit. `null`: the default branch. */
  ref: string | null;
  /** Time of the newest session, RFC 3339. */
  used_at: string;
}

/** Repositories that a new session may start from. */
export interface OfferedRepositories {
  sources: RepositorySource[];
  /** Newest first. */
  recent: RecentRepository[];
}

/** Commit of the session's branch. */
export interface BranchCommit {
  id: string;
  subject: string;
  author: string;
  /** Time of the commit, RFC 3339. */
  at: string;
}

/** Repository of a session, as the server sees its branch. */
export interface RepositoryStatus {
  /** Address or path, without credentials. */
  url: string;
  ref: string | null;
  /** Commit that the workspace began with. `null` until the clone, as are branch and head. */
  base_commit: string | null;
  branch: string | null;
  /** Newest commit of the branch. */
  head: string | null;
  /** Commits since `base_commit`, newest first. At most 100. */
  commits: BranchCommit[];
  /** Last push. */
  pushed: PushedCommit | null;
  push: { possible: boolean; reason: string | null };
}

export interface PushedCommit {
  branch: string;
  commit: string;
}

/** Limit of silence in milliseconds. The server reads the workspace's objects. */
const READ_MS = 60_000;

export const listRepositories = (): Promise<OfferedRepositories> => call("GET", "/repositories");

export const readRepository = (session: string, signal: AbortSignal): Promise<RepositoryStatus> =>
  call("GET", `${sessionPath(session)}/repository`, { signal, silenceMs: READ_MS });

/** Returns a commit message by the session's model. */
export const proposeMessage = async (session: string, signal: AbortSignal): Promise<string> =>
  (await call<{ message: string }>("POST", `${sessionPath(session)}/repository/message`, { body: {}, signal })).message;

/** Commits all changes in the sandbox, as a command of the user. */
export const commitChanges = (session: string, message: string): Promise<void> =>
  call("POST", `${sessionPath(session)}/repository/commit`, { body: { message } });

/**
 * Pushes the session's branch to the repository's branch of a name. With `force`, other commits
 * there are lost.
 */
export const pushBranch = (session: string, branch: string, force: boolean): Promise<PushedCommit & { url: string }> =>
  call("POST", `${sessionPath(session)}/repository/push`, { body: { branch, force } });
