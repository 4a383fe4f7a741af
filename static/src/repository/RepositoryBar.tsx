// Branch of the session above its changes: commits, and the ways to commit and to push.

import { useEffect } from "preact/hooks";
import { BacktickText } from "../components/BacktickText";
import { ErrorNotice } from "../components/ErrorNotice";
import { Icon } from "../components/Icon";
import { escapeInvisible } from "../escapes";
import { WorkspaceIcon } from "../files/WorkspaceIcon";
import { plural } from "../format";
import type { LiveSession } from "../state/liveSession";
import { sessionOf } from "../state/sessionList";
import { CommitDialog } from "./CommitDialog";
import { PushDialog } from "./PushDialog";
import type { RepositoryStatus } from "./repositoriesRest";
import { repositoryOf, type RepositoryState } from "./repositoryState";

interface RepositoryBarProps {
  live: LiveSession;
  /** Changes when the branch may have changed. */
  mark: unknown;
  readOnly: boolean;
}

export function RepositoryBar({ live, mark, readOnly }: RepositoryBarProps) {
  const repository = repositoryOf(live.id);
  const known = sessionOf(live.id)?.repository ?? live.state.value.session?.repository;
  const hasRepository = known != null;
  const status = repository.status.value;

  useEffect(() => {
    if (hasRepository) void repository.load();
  }, [repository, hasRepository, mark]);

  if (!known) return null;
  const branch = status?.branch ?? known.branch;
  const { pushed } = repository;
  return (
    <section class="repository" aria-label="Repository">
      <div class="repository-line">
        <WorkspaceIcon name="branch" />
        <bdi class="branch-name" title={`Branch of ${escapeInvisible(known.url)}`}>
          {branch ? escapeInvisible(branch) : "Not cloned yet"}
        </bdi>
        {!readOnly && status?.branch && (
          <>
            <button type="button" class="button" onClick={() => (repository.dialog.value = "commit")}>
              Commit…
            </button>
            <button type="button" class="button" onClick={() => (repository.dialog.value = "push")}>
              Push…
            </button>
          </>
        )}
      </div>
      {status?.branch && <Commits status={status} />}
      {pushed.value && (
        <div class="restored-note" role="status">
          <span>
            <BacktickText text={`Pushed to the branch \`${escapeInvisible(pushed.value.branch)}\` of \`${escapeInvisible(pushed.value.url)}\``} />
          </span>
          <button type="button" class="icon-button" aria-label="Close" title="Close" onClick={() => (pushed.value = null)}>
            <Icon name="cross" />
          </button>
        </div>
      )}
      {repository.problem.value && <ErrorNotice text={repository.problem.value} onRetry={() => void repository.load()} />}
      <RepositoryDialog repository={repository} />
    </section>
  );
}

function RepositoryDialog({ repository }: { repository: RepositoryState }) {
  const status = repository.status.value;
  if (!status || !repository.dialog.value) return null;
  return repository.dialog.value === "commit" ? <CommitDialog repository={repository} /> : <PushDialog repository={repository} status={status} />;
}

/** Limit of commits that the server lists. */
const LISTED = 100;

function Commits({ status: { commits, head, pushed } }: { status: RepositoryStatus }) {
  const isPushed = pushed !== null && pushed.commit === head;
  const count = commits.length < LISTED ? plural(commits.length, "commit") : `${LISTED} commits or more`;
  if (commits.length === 0) return <p class="muted">No commits yet</p>;
  return (
    <details class="commits">
      <summary>
        {count}, {isPushed ? "pushed" : pushed ? "not all pushed" : "not pushed"}
      </summary>
      <ul>
        {commits.map(({ id, subject, author }) => (
          <li key={id}>
            <code>{id.slice(0, 8)}</code> <bdi>{escapeInvisible(subject)}</bdi> <bdi class="muted">{escapeInvisible(author)}</bdi>
          </li>
        ))}
      </ul>
    </details>
  );
}
