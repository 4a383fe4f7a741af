// What can be done with a session as a whole: rename, archive, end, delete.

import { useState } from "preact/hooks";
import { navigate, route } from "../route";
import { refreshSessions } from "../state/list";
import { changeSession, endSession, purgeSession } from "../wire/rest";
import type { Session } from "../wire/frame";
import { Dialog } from "./Dialog";
import { Popover } from "./Popover";
import { Problem } from "./Problem";

type Asked = "rename" | "end" | "purge" | null;

interface Props {
  session: Session;
  onChanged?: (session: Session) => void;
}

export function SessionMenu({ session, onChanged }: Props) {
  const [asked, setAsked] = useState<Asked>(null);
  const [problem, setProblem] = useState<string | null>(null);

  const act = async (work: () => Promise<Session | void>) => {
    try {
      const changed = await work();
      setProblem(null);
      setAsked(null);
      if (changed) onChanged?.(changed);
      await refreshSessions();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  const purge = async () => {
    await purgeSession(session.id);
    const shown = route.peek();
    if (shown.page === "session" && shown.id === session.id) navigate("/sessions");
  };
  const close = () => {
    setAsked(null);
    setProblem(null);
  };

  return (
    <>
      <Popover label={`What to do with “${session.title || "Untitled"}”`} icon="more">
        {(closeMenu) => {
          const entry = (text: string, onClick: () => void, danger = false) => (
            <button
              type="button"
              class={danger ? "menu-entry danger" : "menu-entry"}
              onClick={() => {
                closeMenu();
                onClick();
              }}
            >
              {text}
            </button>
          );
          return (
            <>
              {entry("Rename…", () => setAsked("rename"))}
              {entry(session.archived ? "Take out of the archive" : "Archive", () =>
                void act(() => changeSession(session.id, { archived: !session.archived })),
              )}
              {session.state !== "ended" && entry("End…", () => setAsked("end"))}
              {entry("Delete…", () => setAsked("purge"), true)}
            </>
          );
        }}
      </Popover>
      {!asked && problem && (
        <Dialog title="That did not work" onClose={close}>
          <Problem text={problem} />
        </Dialog>
      )}
      {asked === "rename" && (
        <Rename
          session={session}
          problem={problem}
          onClose={close}
          onRename={(title) => void act(() => changeSession(session.id, { title }))}
        />
      )}
      {asked === "end" && (
        <Sure
          title="End this session?"
          text="Its sandbox is taken down and it becomes read-only. The conversation stays."
          verb="End"
          problem={problem}
          onClose={close}
          onSure={() => void act(() => endSession(session.id))}
        />
      )}
      {asked === "purge" && (
        <Sure
          title="Delete this session?"
          text="The conversation, its files and its sandbox are removed for good. This cannot be undone."
          verb="Delete"
          problem={problem}
          onClose={close}
          onSure={() => void act(purge)}
        />
      )}
    </>
  );
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
        value={title}
        autofocus
        onInput={(event) => setTitle(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Enter" && !event.isComposing && title.trim() && onRename(title.trim())}
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
