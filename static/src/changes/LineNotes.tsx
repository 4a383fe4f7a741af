// Comments below a line of a diff, and the field for a new one.

import { useState } from "preact/hooks";
import { focusSoon } from "../dom/focusSoon";
import { keyOfLine, type CommentedLine, type LineComment, type LineComments } from "./lineComments";

interface LineNotesProps {
  comments: LineComments;
  line: CommentedLine;
  /** Number of columns of the table. */
  columns: number;
}

export function LineNotes({ comments, line, columns }: LineNotesProps) {
  const key = keyOfLine(line);
  const written = comments.written.value;
  const isWritten = written !== null && keyOfLine(written) === key;
  const edited = isWritten && "id" in written ? written.id : null;
  return (
    <tr class="line-notes">
      <td colSpan={columns}>
        {comments.all.value
          .filter((one) => keyOfLine(one) === key && one.id !== edited)
          .map((comment) => (
            <LineNote key={comment.id} comments={comments} comment={comment} />
          ))}
        {isWritten && <CommentField comments={comments} written={written} />}
      </td>
    </tr>
  );
}

function LineNote({ comments, comment }: { comments: LineComments; comment: LineComment }) {
  return (
    <div class="line-note">
      <p dir="auto">{comment.text}</p>
      <button type="button" class="link" onClick={() => (comments.written.value = comment)}>
        Edit
      </button>
      <button type="button" class="link" onClick={() => comments.remove(comment.id)}>
        Remove
      </button>
    </div>
  );
}

function CommentField({ comments, written }: { comments: LineComments; written: CommentedLine | LineComment }) {
  const [text, setText] = useState("text" in written ? written.text : "");
  /** Gives the focus back to the line. */
  const close = (event: Event, act: () => void) => {
    const line = (event.currentTarget as Element).closest("tr")?.previousElementSibling;
    act();
    if (line instanceof HTMLElement) focusSoon(line);
  };
  const save = (event: Event) => close(event, () => comments.save(text));
  return (
    <div class="line-note">
      <textarea
        class="field"
        aria-label={`Comment on line ${written.line}`}
        placeholder="Goes into your next message"
        dir="auto"
        rows={3}
        value={text}
        ref={(field) => void (field && !field.dataset.focused && ((field.dataset.focused = "true"), field.focus()))}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            save(event);
          } else if (event.key === "Escape") {
            event.preventDefault();
            event.stopPropagation();
            close(event, () => (comments.written.value = null));
          }
        }}
      />
      <div class="line-note-buttons">
        <button type="button" class="button" onClick={(event) => close(event, () => (comments.written.value = null))}>
          Cancel
        </button>
        <button type="button" class="button primary" disabled={!text.trim()} onClick={save}>
          Comment
        </button>
      </div>
    </div>
  );
}
