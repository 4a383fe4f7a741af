// What can be done with a session as a whole: resume, rename, archive, export, end, delete.

import { useState } from "preact/hooks";
import { navigate, route } from "../route";
import { refreshSessions } from "../state/list";
import { changeSession, endSession, exportAddress, purgeSession, resumeSession } from "../wire/rest";
import type { Session } from "../wire/frame";
import { lazy } from "./lazy";
import { Popover } from "./Popover";

const questions = () => import("../later");
const Rename = lazy(() => questions().then((loaded) => loaded.Rename));
const Sure = lazy(() => questions().then((loaded) => loaded.Sure));
const Failed = lazy(() => questions().then((loaded) => loaded.Failed));

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
              {(session.state === "paused" || session.state === "stopped") &&
                entry("Resume", () => void act(() => resumeSession(session.id)))}
              {entry("Rename…", () => setAsked("rename"))}
              {entry(session.archived ? "Take out of the archive" : "Archive", () =>
                void act(() => changeSession(session.id, { archived: !session.archived })),
              )}
              <a class="menu-entry" href={exportAddress(session.id, "md")} download onClick={closeMenu}>
                Export as Markdown
              </a>
              <a class="menu-entry" href={exportAddress(session.id, "jsonl")} download onClick={closeMenu}>
                Export as JSONL
              </a>
              {session.state !== "ended" && entry("End…", () => setAsked("end"))}
              {entry("Delete…", () => setAsked("purge"), true)}
            </>
          );
        }}
      </Popover>
      {!asked && problem && <Failed problem={problem} onClose={close} />}
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
