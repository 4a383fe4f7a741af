// What the server cannot do, or did not carry out, and why.

import { useEffect, useState } from "preact/hooks";
import { openLive } from "../state/current";
import type { LiveSession } from "../state/live";
import { whyUnreadable, type Sent } from "../state/session";
import { unfoldConversation } from "../state/unfold";
import { uploadsOf } from "../state/uploads";
import type { Wish } from "../wire/frame";
import { tooLong } from "../wire/limit";
import { Problem } from "./Problem";

export function Outbox({ live }: { live: LiveSession }) {
  const { sending, trouble } = live.state.value;
  const refused = sending.filter((sent) => sent.refusal !== undefined);
  const newest = refused.at(-1)?.id;
  // Nothing asks again by itself then.
  const isLeft = whyUnreadable(live.state.value) !== undefined;
  useEffect(() => {
    if (newest !== undefined) unfoldConversation();
  }, [newest]);
  useEffect(() => {
    if (trouble) unfoldConversation();
  }, [trouble]);
  return (
    <>
      {trouble && <Problem text={trouble} onRetry={isLeft ? () => live.retryNow() : undefined} />}
      {refused.map((sent) => (
        <Refused key={sent.id} live={live} sent={sent} />
      ))}
    </>
  );
}

function Refused({ live, sent }: { live: LiveSession; sent: Sent }) {
  const written = writtenIn(sent.wish);
  const isAgain = canBeAgain(sent.wish, live);
  const text = written?.content ?? otherWordsIn(sent.wish);
  const isTooLong = tooLong({ ...sent.wish, id: sent.id }) !== undefined;
  const again = () => {
    if (isAgain) return live.again(sent.id);
    live.drop(sent.id);
    if (written) live.message(written.content, written.mode, written.attachments);
  };
  const [isAttaching, setIsAttaching] = useState(false);
  const [why, setWhy] = useState<string | null>(null);
  const isEnded = live.state.value.agentState === "ended";
  const attach = async () => {
    if (!written) return;
    const uploads = uploadsOf(live.id);
    setIsAttaching(true);
    const trouble = await uploads.add([new File([written.content], "message.txt", { type: "text/plain" })]);
    setIsAttaching(false);
    setWhy(trouble);
    // Its person may have left meanwhile, and come back: then it is this session's other screen that shows it.
    const now = openLive.peek()?.id === live.id ? openLive.peek()! : live;
    // Until that file lies there, its words are nowhere else; nor where no message will name it.
    if (trouble !== null || now.state.peek().agentState === "ended") return;
    uploads.take(written.attachments ?? []);
    now.drop(sent.id);
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
        {/* Elsewhere it is said beside the message that is being written. */}
        {isEnded && why !== null && ` It could not be attached: ${why}.`}
      </span>
      {written && isTooLong && !isEnded && (
        <button type="button" class="button" disabled={isAttaching} onClick={() => void attach()}>
          Attach as a file
        </button>
      )}
      {(written || isAgain) && !isTooLong && (
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

/** Whether the same wish can still be sent. A change cannot, once its message has left the queue. */
function canBeAgain(wish: Wish, live: LiveSession): boolean {
  if (wish.action !== "edit_queue") return wish.action === "message" || wish.action === "run";
  const { item, content } = wish.args;
  return content !== undefined && live.state.value.queue.some((queued) => queued.item === item);
}

/** What else a person typed. */
function otherWordsIn(wish: Wish): string | undefined {
  if (wish.action === "run") return wish.args.command;
  return wish.action === "confirm" ? wish.args.reason : undefined;
}

/** The message that a wish holds: a change of one that waited can still be sent as a new one. */
function writtenIn(wish: Wish): Extract<Wish, { action: "message" }>["args"] | null {
  if (wish.action === "message") return wish.args;
  if (wish.action === "edit_queue" && wish.args.content !== undefined) return { content: wish.args.content, mode: "queue" };
  return null;
}
