// What is asked before a session is renamed, ended or deleted. Loaded when it is asked.

import { useState } from "preact/hooks";
import type { Session } from "../wire/frame";
import { Dialog } from "./Dialog";
import { Problem } from "./Problem";

interface RenameProps {
  session: Session;
  problem: string | null;
  onClose: () => void;
  onRename: (title: string) => void;
}

export function Rename({ session, problem, onClose, onRename }: RenameProps) {
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

export function Sure({ title, text, verb, problem, onClose, onSure }: SureProps) {
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

export function Failed({ problem, onClose }: { problem: string; onClose: () => void }) {
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
