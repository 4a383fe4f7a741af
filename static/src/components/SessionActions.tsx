// The menu of a session: resume, rename, archive, export, end, delete.

import { useLayoutEffect, useRef } from "preact/hooks";
import type { Asked } from "../state/asked";
import type { Session } from "../wire/frame";
import { exportAddress } from "../wire/manage";

interface Props {
  session: Session;
  /** `null`: the menu has done its work. */
  onChosen: (act: Asked["act"] | null) => void;
}

export function SessionActs({ session, onChosen }: Props) {
  const { id, state, archived } = session;
  const menu = useRef<HTMLDivElement>(null);
  // Whoever opened it by a key goes on by keys.
  useLayoutEffect(() => menu.current?.querySelector("button")?.focus(), []);
  return (
    <div ref={menu}>
      {(state === "paused" || state === "stopped") && <Act text="Resume" onClick={() => onChosen("resume")} />}
      <Act text="Rename…" onClick={() => onChosen("rename")} />
      <Act text={archived ? "Take out of the archive" : "Archive"} onClick={() => onChosen("archive")} />
      <Download text="Export as Markdown" href={exportAddress(id, "md")} onClick={() => onChosen(null)} />
      <Download text="Export as JSONL" href={exportAddress(id, "jsonl")} onClick={() => onChosen(null)} />
      {state !== "ended" && <Act text="End…" onClick={() => onChosen("end")} />}
      <Act text="Delete…" danger onClick={() => onChosen("purge")} />
    </div>
  );
}

function Act({ text, danger, onClick }: { text: string; danger?: boolean; onClick: () => void }) {
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
