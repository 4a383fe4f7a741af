// What the server cannot do, or did not carry out, and why.

import { useEffect } from "preact/hooks";
import type { LiveSession } from "../state/live";
import type { Sent } from "../state/session";
import { unfoldConversation } from "../state/unfold";
import { uploadsOf } from "../state/uploads";
import type { Wish } from "../wire/frame";
import { tooLong } from "../wire/limit";

export function Outbox({ live }: { live: LiveSession }) {
  const { sending, trouble } = live.state.value;
  const refused = sending.filter((sent) => sent.refusal !== undefined);
  const newest = refused.at(-1)?.id;
  useEffect(() => {
    if (newest !== undefined) unfoldConversation();
  }, [newest]);
  useEffect(() => {
    if (trouble) unfoldConversation();
  }, [trouble]);
  return (
    <>
      {trouble && (
        <div class="problem" role="alert">
          <span>{trouble}</span>
        </div>
      )}
      {refused.map((sent) => (
        <Refused key={sent.id} live={live} sent={sent} />
      ))}
    </>
  );
}

function Refused({ live, sent }: { live: LiveSession; sent: Sent }) {
  const written = writtenIn(sent.wish);
  const command = sent.wish.action === "run" ? sent.wish.args.command : null;
  const text = written?.content ?? command;
  const isTooLong = tooLong({ ...sent.wish, id: sent.id }) !== undefined;
  const again = () => {
    live.drop(sent.id);
    if (written) live.message(written.content, written.mode, written.attachments);
    if (command) live.run(command);
  };
  const attach = () => {
    live.drop(sent.id);
    if (!written) return;
    uploadsOf(live.id).take(written.attachments ?? []);
    uploadsOf(live.id).add([new File([written.content], "message.txt", { type: "text/plain" })]);
  };
  return (
    <div class="problem" role="alert">
      <span>
        {sent.refusal}
        {text && (
          <q class="muted" dir="auto" tabIndex={0}>
            {text}
          </q>
        )}
      </span>
      {written && isTooLong && (
        <button type="button" class="button" onClick={attach}>
          Attach as a file
        </button>
      )}
      {text && !isTooLong && (
        <button type="button" class="button" onClick={again}>
          {written ? "Send again" : "Try again"}
        </button>
      )}
      <button type="button" class="button" onClick={() => live.drop(sent.id)}>
        Dismiss
      </button>
    </div>
  );
}

/** The message that a wish holds: a change of one that waited can still be sent as a new one. */
function writtenIn(wish: Wish): Extract<Wish, { action: "message" }>["args"] | null {
  if (wish.action === "message") return wish.args;
  if (wish.action === "edit_queue" && wish.args.content !== undefined) return { content: wish.args.content, mode: "queue" };
  return null;
}
