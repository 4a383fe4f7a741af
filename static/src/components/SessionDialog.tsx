// What was chosen in a session's menu: asked where it needs an answer, then done; what did not work is said.

import { useEffect, useState } from "preact/hooks";
import { isComposing } from "../composing";
import { navigate, route } from "../route";
import { asked, type Asked } from "../state/asked";
import { learn, refreshSessions } from "../state/list";
import { forgetUnsent } from "../state/unsent";
import { changeSession, endSession, purgeSession, resumeSession } from "../wire/manage";
import type { Session } from "../wire/frame";
import { Dialog } from "./Dialog";
import { Problem } from "./Problem";

export function SessionQuestions({ session, act: chosen }: Asked) {
  const [problem, setProblem] = useState<string | null>(null);

  const done = () => {
    // Something else may have been chosen meanwhile.
    const now = asked.peek();
    if (now?.session === session && now.act === chosen) asked.value = null;
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
  const change = async (to: { title?: string; archived?: boolean }) => learn([await changeSession(session.id, to)]);
  const purge = async () => {
    await purgeSession(session.id);
    forgetUnsent(session.id);
    const shown = route.peek();
    if (shown.page === "session" && shown.id === session.id) navigate("/sessions");
  };

  // These two need no question.
  useEffect(() => {
    if (chosen === "resume") void act(() => resumeSession(session.id));
    if (chosen === "archive") void act(() => change({ archived: !session.archived }));
  }, []);

  switch (chosen) {
    case "resume":
    case "archive":
      return problem === null ? null : <Failed problem={problem} onClose={done} />;
    case "rename":
      return (
        <Rename
          session={session}
          problem={problem}
          onClose={done}
          onRename={(title) => void act(() => change({ title }))}
        />
      );
    case "end":
      return (
        <Sure
          title="End this session?"
          text="Its sandbox is taken down and it becomes read-only. The conversation stays."
          verb="End"
          problem={problem}
          onClose={done}
          onSure={() => void act(() => endSession(session.id))}
        />
      );
    case "purge":
      return (
        <Sure
          title="Delete this session?"
          text="The conversation, its files and its sandbox are removed for good. This cannot be undone."
          verb="Delete"
          problem={problem}
          onClose={done}
          onSure={() => void act(purge)}
        />
      );
  }
}

interface RenameProps {
  session: Session;
  problem: string | null;
  onClose: () => void;
  onRename: (title: string) => void;
}

function Rename({ session, problem, onClose, onRename }: RenameProps) {
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
      {problem && <Problem text={problem} />}
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

interface SureProps {
  title: string;
  text: string;
  verb: string;
  problem: string | null;
  onClose: () => void;
  onSure: () => void;
}

function Sure({ title, text, verb, problem, onClose, onSure }: SureProps) {
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{text}</p>
      {problem && <Problem text={problem} />}
      <div class="dialog-buttons">
        <button type="button" class="button" autofocus onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="button danger" onClick={onSure}>
          {verb}
        </button>
      </div>
    </Dialog>
  );
}

function Failed({ problem, onClose }: { problem: string; onClose: () => void }) {
  return (
    <Dialog title="That did not work" onClose={onClose}>
      <Problem text={problem} />
      <div class="dialog-buttons">
        <button type="button" class="button" autofocus onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
