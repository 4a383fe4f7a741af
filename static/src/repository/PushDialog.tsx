// Push of the session's branch: its name in the repository, and reasons against it.

import { useState } from "preact/hooks";
import { BacktickText } from "../components/BacktickText";
import { Dialog } from "../components/Dialog";
import { ErrorNotice } from "../components/ErrorNotice";
import { isComposing } from "../dom/ime";
import { escapeInvisible } from "../escapes";
import { plural } from "../format";
import type { RestError } from "../wire/rest";
import { pushBranch, type RepositoryStatus } from "./repositoriesRest";
import type { RepositoryState } from "./repositoryState";

/** Way out of a missing credential, beside the server's. */
const PATCH = "Or download the patch from the menu of the changes.";

export function PushDialog({ repository, status }: { repository: RepositoryState; status: RepositoryStatus }) {
  const { push, commits } = status;
  const [branch, setBranch] = useState(status.pushed?.branch ?? status.branch ?? "");
  const [problem, setProblem] = useState(push.possible ? "" : (push.reason ?? "The server cannot push."));
  const [wayOut, setWayOut] = useState(push.possible ? "" : PATCH);
  /** Branch that has other commits. */
  const [rejected, setRejected] = useState<string | null>(null);
  const [isPushing, setIsPushing] = useState(false);
  const close = () => (repository.dialog.value = null);
  const canPush = push.possible && !isPushing && branch.trim() !== "";

  const send = async (force: boolean) => {
    setIsPushing(true);
    setProblem("");
    setWayOut("");
    setRejected(null);
    try {
      repository.pushed.value = await pushBranch(repository.session, branch.trim(), force);
      close();
      void repository.load();
    } catch (error) {
      setProblem((error as Error).message);
      const { code } = error as RestError;
      if (code === "no_credentials") setWayOut(PATCH);
      if (code === "not_fast_forward") setRejected(branch);
      setIsPushing(false);
    }
  };

  return (
    <Dialog title="Push the branch" onClose={close}>
      <label class="file-path-label">
        Branch in the repository
        <input
          class="field"
          dir="ltr"
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          autofocus
          value={branch}
          onInput={(event) => setBranch(event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Enter" && !isComposing(event) && canPush && void send(false)}
        />
      </label>
      <p class="muted push-target">
        <BacktickText text={`${plural(commits.length, "commit")} to \`${escapeInvisible(status.url)}\`. Uncommitted changes stay here.`} />
      </p>
      {problem && <ErrorNotice text={[problem, wayOut].filter(Boolean).join(". ")} />}
      <div class="dialog-buttons">
        <button type="button" class="button" onClick={close}>
          Cancel
        </button>
        {rejected === branch && (
          <button type="button" class="button danger" disabled={!canPush} onClick={() => void send(true)}>
            Replace the branch
          </button>
        )}
        <button type="button" class="button primary" disabled={!canPush} onClick={() => void send(false)}>
          {isPushing ? "Pushing…" : "Push"}
        </button>
      </div>
    </Dialog>
  );
}
