// What the server cannot do, or did not carry out, and why.

import type { LiveSession } from "../state/live";
import type { Sent } from "../state/session";

export function Outbox({ live }: { live: LiveSession }) {
  const { sending, trouble } = live.state.value;
  const refused = sending.filter((sent) => sent.refusal !== undefined);
  return (
    <>
      {trouble && (
        <div class="problem" role="alert">
          <span>{trouble}</span>
        </div>
      )}
      {refused.map((sent) => (
        <div key={sent.id} class="problem" role="alert">
          <span>
            {sent.refusal}
            {sent.wish.action === "message" && (
              <q class="muted" tabIndex={0}>
                {sent.wish.args.content}
              </q>
            )}
          </span>
          {sent.wish.action === "message" && (
            <button type="button" class="button" onClick={() => again(live, sent)}>
              Send again
            </button>
          )}
          <button type="button" class="button" onClick={() => live.drop(sent.id)}>
            Dismiss
          </button>
        </div>
      ))}
    </>
  );
}

function again(live: LiveSession, sent: Sent): void {
  live.drop(sent.id);
  if (sent.wish.action === "message") live.message(sent.wish.args.content, sent.wish.args.mode, sent.wish.args.attachments);
}
