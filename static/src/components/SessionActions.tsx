// Menu of a session: resume, rename, fork, archive, export, end, delete.

import { useLayoutEffect, useRef } from "preact/hooks";
import type { SessionDialogRequest } from "../state/sessionDialog";
import type { Session } from "../wire/frame";
import { exportAddress } from "../wire/lazyRest";

interface SessionActionsProps {
  session: Session;
  /** `null`: the menu itself completed the action. */
  onChosen: (act: SessionDialogRequest["action"] | null) => void;
}

export function SessionActions({ session, onChosen }: SessionActionsProps) {
  const { id, state, archived } = session;
  const menu = useRef<HTMLDivElement>(null);
  // The first entry receives the focus for keyboard users.
  useLayoutEffect(() => menu.current?.querySelector("button")?.focus(), []);
  return (
    <div ref={menu}>
      {(state === "paused" || state === "stopped") && <MenuAction text="Resume" onClick={() => onChosen("resume")} />}
      <MenuAction text="Rename…" onClick={() => onChosen("rename")} />
      <MenuAction text="Fork…" onClick={() => onChosen("fork")} />
      <MenuAction text={archived ? "Unarchive" : "Archive"} onClick={() => onChosen("archive")} />
      <Download text="Export as Markdown" href={exportAddress(id, "md")} onClick={() => onChosen(null)} />
      <Download text="Export as JSONL" href={exportAddress(id, "jsonl")} onClick={() => onChosen(null)} />
      {state !== "ended" && <MenuAction text="End…" onClick={() => onChosen("end")} />}
      <MenuAction text="Delete…" danger onClick={() => onChosen("purge")} />
    </div>
  );
}

function MenuAction({ text, danger, onClick }: { text: string; danger?: boolean; onClick: () => void }) {
  return (
    <button type="button" class={danger ? "menu-entry danger" : "menu-entry"} onClick={onClick}>
      {text}
    </button>
  );
}

function Download({ text, href, onClick }: { text: string; href: string; onClick: () => void }) {
  return (
    <a class="menu-entry" href={href} download onClick={onClick}>
      {text}
    </a>
  );
}
