// Dialogs of session actions: confirmation if needed, the action, and its failure.

import { useEffect, useState } from "preact/hooks";
import { isComposing } from "../dom/ime";
import { navigate, route } from "../route";
import { toggleArchivedMark } from "../state/archiveSession";
import { sessionDialog, type SessionDialogRequest } from "../state/sessionDialog";
import { mergeSessions, refreshSessions } from "../state/sessionList";
import { forgetSession } from "../state/pendingStorage";
import { changeSession, endSession, purgeSession, resumeSession } from "../wire/lazyRest";
import type { Session } from "../wire/frame";
import { ForkDialog } from "../fork/ForkDialog";
import { Dialog } from "./Dialog";
import { ErrorNotice } from "./ErrorNotice";

export function SessionDialog({ session, action: chosen, fork }: SessionDialogRequest) {
  const [problem, setProblem] = useState<string | null>(null);

  const done = () => {
    // Another dialog may have opened meanwhile.
    const now = sessionDialog.peek();
    if (now?.session === session && now.action === chosen) sessionDialog.value = null;
  };
  const act = async (work: () => Promise<unknown>) => {
    try {
      await work();
      done();
      await refreshSessions();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  const change = async (to: { title: string }) => mergeSessions([await changeSession(session.id, to)]);
  const purge = async () => {
    await purgeSession(session.id);
    forgetSession(session.id);
    const shown = route.peek();
    if (shown.page === "session" && shown.id === session.id) navigate("/sessions");
  };

  // Resume and archive need no confirmation.
  useEffect(() => {
    if (chosen === "resume") void act(() => resumeSession(session.id));
    if (chosen === "archive") void act(() => toggleArchivedMark(session));
  }, []);

  switch (chosen) {
    case "resume":
    case "archive":
      return problem === null ? null : <FailureDialog problem={problem} onClose={done} />;
    case "rename":
      return (
        <RenameDialog
          session={session}
          problem={problem}
          onClose={done}
          onRename={(title) => void act(() => change({ title }))}
        />
      );
    case "fork":
      return <ForkDialog session={session} start={fork} onClose={done} />;
    case "end":
      return (
        <ConfirmDialog
          title="End this session?"
          text="Its sandbox is removed. The conversation stays, read-only."
          verb="End"
          problem={problem}
          onClose={done}
          onConfirm={() => void act(() => endSession(session.id))}
        />
      );
    case "purge":
      return (
        <ConfirmDialog
          title="Delete this session?"
          text="Its conversation, files and sandbox are deleted. This cannot be undone."
          verb="Delete"
          problem={problem}
          onClose={done}
          onConfirm={() => void act(purge)}
        />
      );
  }
}

interface RenameDialogProps {
  session: Session;
  problem: string | null;
  onClose: () => void;
  onRename: (title: string) => void;
}

function RenameDialog({ session, problem, onClose, onRename }: RenameDialogProps) {
  const [title, setTitle] = useState(session.title);
  return (
    <Dialog title="Rename" onClose={onClose}>
      <input
        class="field"
        aria-label="Title"
        dir="auto"
        value={title}
        autofocus
        onInput={(event) => setTitle(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Enter" && !isComposing(event) && title.trim() && onRename(title.trim())}
      />
      {problem && <ErrorNotice text={problem} />}
      <div class="dialog-buttons">
        <button type="button" class="button" onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="button primary" disabled={!title.trim()} onClick={() => onRename(title.trim())}>
          Rename
        </button>
      </div>
    </Dialog>
  );
}

interface ConfirmDialogProps {
  title: string;
  text: string;
  verb: string;
  problem: string | null;
  onClose: () => void;
  onConfirm: () => void;
}

function ConfirmDialog({ title, text, verb, problem, onClose, onConfirm }: ConfirmDialogProps) {
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{text}</p>
      {problem && <ErrorNotice text={problem} />}
      <div class="dialog-buttons">
        <button type="button" class="button" autofocus onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="button danger" onClick={onConfirm}>
          {verb}
        </button>
      </div>
    </Dialog>
  );
}

function FailureDialog({ problem, onClose }: { problem: string; onClose: () => void }) {
  return (
    <Dialog title="Action failed" onClose={onClose}>
      <ErrorNotice text={problem} />
      <div class="dialog-buttons">
        <button type="button" class="button" autofocus onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
