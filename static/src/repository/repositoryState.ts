// State of a session's repository. Survives a change of the tab.

import { signal } from "@preact/signals";
import { readRepository, type PushedCommit, type RepositoryStatus } from "./repositoriesRest";

export class RepositoryState {
  /** `null`: not read yet. */
  readonly status = signal<RepositoryStatus | null>(null);
  readonly problem = signal("");
  readonly dialog = signal<"commit" | "push" | null>(null);
  /** Outcome of the last push on this page. */
  readonly pushed = signal<(PushedCommit & { url: string }) | null>(null);
  /** Text of the commit message, kept if the dialog is closed without a commit. */
  readonly message = signal("");
  private reading = new AbortController();

  constructor(readonly session: string) {}

  /** Reads the branch. A newer call replaces an earlier one. */
  async load(): Promise<void> {
    this.reading.abort();
    const { signal } = (this.reading = new AbortController());
    try {
      const status = await readRepository(this.session, signal);
      if (signal.aborted) return;
      this.status.value = status;
      this.problem.value = "";
    } catch (error) {
      if (!signal.aborted) this.problem.value = (error as Error).message;
    }
  }
}

const states = new Map<string, RepositoryState>();

/** Returns the state of a session's repository. */
export function repositoryOf(session: string): RepositoryState {
  const known = states.get(session) ?? new RepositoryState(session);
  states.set(session, known);
  return known;
}
