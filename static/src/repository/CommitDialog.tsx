// Message of a commit, proposed by the session's model.

import { useEffect, useRef, useState } from "preact/hooks";
import { Dialog } from "../components/Dialog";
import { ErrorNotice } from "../components/ErrorNotice";
import { commitChanges, proposeMessage } from "./repositoriesRest";
import type { RepositoryState } from "./repositoryState";

export function CommitDialog({ repository }: { repository: RepositoryState }) {
  const { session, message } = repository;
  const [problem, setProblem] = useState("");
  const [isProposing, setIsProposing] = useState(false);
  const [isCommitting, setIsCommitting] = useState(false);
  const proposal = useRef<AbortController | null>(null);
  const close = () => (repository.dialog.value = null);

  /** Asks the model. What the user writes meanwhile stays. */
  const propose = async () => {
    const before = message.peek();
    const asked = (proposal.current = new AbortController());
    setIsProposing(true);
    setProblem("");
    try {
      const proposed = await proposeMessage(session, asked.signal);
      if (!asked.signal.aborted && message.peek() === before) message.value = proposed;
    } catch (error) {
      if (!asked.signal.aborted) setProblem((error as Error).message);
    }
    if (!asked.signal.aborted) setIsProposing(false);
  };
  const commit = async () => {
    setIsCommitting(true);
    setProblem("");
    try {
      await commitChanges(session, message.peek().trim());
      message.value = "";
      close();
    } catch (error) {
      setProblem((error as Error).message);
      setIsCommitting(false);
    }
  };

  useEffect(() => {
    if (!message.peek()) void propose();
    return () => proposal.current?.abort();
  }, []);

  return (
    <Dialog title="Commit all changes" onClose={close}>
      <label class="file-path-label">
        Message
        <textarea
          class="field commit-message"
          dir="auto"
          rows={6}
          autofocus
          placeholder={isProposing ? "The model proposes a message…" : "Summary, blank line, reason"}
          value={message.value}
          onInput={(event) => (message.value = event.currentTarget.value)}
        />
      </label>
      <p class="visually-hidden" role="status">
        {isProposing ? "The model proposes a message" : ""}
      </p>
      <p class="muted">The commit runs in the sandbox, on the session's branch.</p>
      {problem && <ErrorNotice text={problem} />}
      <div class="dialog-buttons">
        <button type="button" class="button" disabled={isProposing || isCommitting} onClick={() => void propose()}>
          {isProposing ? "Proposing…" : "Propose again"}
        </button>
        <button type="button" class="button" onClick={close}>
          Cancel
        </button>
        <button type="button" class="button primary" disabled={isCommitting || !message.value.trim()} onClick={() => void commit()}>
          {isCommitting ? "Committing…" : "Commit"}
        </button>
      </div>
    </Dialog>
  );
}
