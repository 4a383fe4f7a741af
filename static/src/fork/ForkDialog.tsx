// Dialog before a fork: the edited message if there is one, and a choice of files if the
// checkpoint is missing.

import { useEffect, useRef, useState } from "preact/hooks";
import { listCheckpoints } from "../changes/checkpointsRest";
import { BacktickText } from "../components/BacktickText";
import { Dialog } from "../components/Dialog";
import { ErrorNotice } from "../components/ErrorNotice";
import { isComposing } from "../dom/ime";
import { newId } from "../id";
import { navigate } from "../route";
import type { ForkStart } from "../state/sessionDialog";
import { mergeSessions, refreshSessions } from "../state/sessionList";
import type { Session } from "../wire/frame";
import { RestError } from "../wire/rest";
import { forkSession, NO_CHECKPOINT, type ForkFileChoice, type ForkOptions } from "./forkRest";

interface ForkDialogProps {
  session: Session;
  start: ForkStart | undefined;
  onClose: () => void;
}

/** Unsent texts by session and event. A closed dialog opens with its text again. */
const drafts = new Map<string, string>();

export function ForkDialog({ session, start, onClose }: ForkDialogProps) {
  const { at, message, hasFiles = false } = start ?? {};
  const draftKey = `${session.id} ${at}`;
  const isEdit = message !== undefined;
  const [text, setText] = useState(drafts.get(draftKey) ?? message ?? "");
  const [problem, setProblem] = useState<Error | null>(null);
  /** True from the first answer without a checkpoint. */
  const [isChoosing, setIsChoosing] = useState(false);
  const [isForking, setIsForking] = useState(false);
  const isOpen = useRef(true);
  useEffect(() => () => void (isOpen.current = false), []);
  /** Last request with its idempotency key. A repeated one makes no second session. */
  const attempt = useRef({ requestJson: "", key: "" });
  const choices = useRef<HTMLDivElement>(null);
  // The pressed button was disabled meanwhile, and so lost the focus.
  useEffect(() => void (isChoosing && choices.current?.querySelector("button")?.focus()), [isChoosing]);
  const withoutFiles = useReasonWithoutFiles(session.id);

  const write = (written: string) => {
    setText(written);
    drafts.set(draftKey, written);
  };
  const fork = async (files?: ForkFileChoice) => {
    if (isForking || (isEdit && !text.trim())) return;
    const options: ForkOptions = { ...(at !== undefined && { at }), ...(isEdit && { message: text.trim() }), ...(files && { files }) };
    const requestJson = JSON.stringify(options);
    if (attempt.current.requestJson !== requestJson) attempt.current = { requestJson, key: newId() };
    setIsForking(true);
    setProblem(null);
    try {
      const made = await forkSession(session.id, options, attempt.current.key);
      drafts.delete(draftKey);
      mergeSessions([made]);
      void refreshSessions();
      // A closed dialog no longer moves the user.
      if (!isOpen.current) return;
      onClose();
      navigate(`/sessions/${made.id}`);
    } catch (error) {
      setProblem(error as Error);
      if (error instanceof RestError && error.code === NO_CHECKPOINT) setIsChoosing(true);
      setIsForking(false);
    }
  };

  return (
    <Dialog title={isEdit ? "Edit and resend" : "Fork this session?"} onClose={onClose}>
      {isEdit && (
        <textarea
          class="field fork-text"
          aria-label="Message"
          dir="auto"
          rows={5}
          value={text}
          autofocus
          onInput={(event) => write(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.altKey || event.repeat || isComposing(event)) return;
            event.preventDefault();
            void fork();
          }}
        />
      )}
      <p>{isEdit ? "A new session goes on from before this message." : `A new session goes on from ${start ? "here" : "its last turn"}.`}</p>
      <p class="muted">
        {withoutFiles ? <BacktickText text={`It begins without files: ${withoutFiles}`} /> : "Its files are copied as they were then."} This session stays
        as it is.
      </p>
      {hasFiles && <p class="muted">Attached files are not sent again.</p>}
      {problem && <ErrorNotice text={problem.message} />}
      {isChoosing && (
        <div ref={choices} class="fork-files" role="group" aria-label="Files of the fork">
          <button type="button" class="button" disabled={isForking} onClick={() => void fork("now")}>
            With the files of now
          </button>
          <button type="button" class="button" disabled={isForking} onClick={() => void fork("none")}>
            Fork without files
          </button>
        </div>
      )}
      <div class="dialog-buttons">
        <button type="button" class="button" onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="button primary" autofocus={!isEdit} disabled={isForking || (isEdit && !text.trim())} onClick={() => void fork()}>
          {isForking ? "Forking…" : isEdit ? "Send in a fork" : "Fork"}
        </button>
      </div>
    </Dialog>
  );
}

/** Returns the reason for which a session has no checkpoints, once it is known. */
function useReasonWithoutFiles(session: string): string | null {
  const [reason, setReason] = useState<string | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    // Without an answer, the fork itself says what is missing.
    void listCheckpoints(session, abort.signal).then(({ offered, reason }) => setReason(offered ? null : reason), () => {});
    return () => abort.abort();
  }, []);
  return reason;
}
