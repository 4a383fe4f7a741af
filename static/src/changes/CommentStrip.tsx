// Collected comments at the foot of the changes, and the way into the next message.

import { useState } from "preact/hooks";
import { FileName } from "../files/FileName";
import { plural } from "../format";
import { Icon } from "../components/Icon";
import type { ChangesState } from "./changesState";
import { addToDraft } from "./openChanges";

export function CommentStrip({ changes }: { changes: ChangesState }) {
  const [isOpen, setIsOpen] = useState(false);
  const { comments, session } = changes;
  const all = comments.all.value;
  if (all.length === 0) return null;
  return (
    <section class="comment-strip" aria-label="Comments">
      {isOpen && (
        <ul>
          {all.map(({ id, file, line, text }) => (
            <li key={id}>
              <span class="comment-place">
                <FileName name={file.path} encoded={file.encoded} />:{line}
              </span>
              <span class="comment-text" dir="auto">{text}</span>
              <button type="button" class="icon-button" aria-label={`Remove the comment on line ${line}`} title="Remove" onClick={() => comments.remove(id)}>
                <Icon name="cross" />
              </button>
            </li>
          ))}
        </ul>
      )}
      <div class="comment-buttons">
        <button type="button" class="link" aria-expanded={isOpen} onClick={() => setIsOpen(!isOpen)}>
          {plural(all.length, "comment")}
        </button>
        <button type="button" class="button primary" onClick={() => addToDraft(session, comments.take())}>
          Add to your message
        </button>
      </div>
    </section>
  );
}
