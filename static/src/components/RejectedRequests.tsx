// Problems of the server and rejected requests, with their reasons.

import { useEffect, useState } from "preact/hooks";
import { currentLive } from "../state/currentSession";
import type { LiveSession } from "../state/liveSession";
import { decisionText } from "../state/observations";
import { unreadableReason, type PendingRequest } from "../state/screenState";
import { unfoldConversation } from "../state/unfoldConversation";
import { uploadsOf } from "../state/uploads";
import type { ClientRequest } from "../wire/frame";
import { tooLongError } from "../wire/frameLimit";
import { BacktickText } from "./BacktickText";
import { ErrorNotice } from "./ErrorNotice";

export function RejectedRequests({ live }: { live: LiveSession }) {
  const { pending, problem } = live.state.value;
  const refused = pending.filter((sent) => sent.rejection !== undefined);
  const newest = refused.at(-1)?.id;
  // An unreadable session has no automatic retry.
  const isLeft = unreadableReason(live.state.value) !== undefined;
  useEffect(() => {
    if (newest !== undefined) unfoldConversation();
  }, [newest]);
  useEffect(() => {
    if (problem) unfoldConversation();
  }, [problem]);
  return (
    <>
      {problem && <ErrorNotice text={problem} onRetry={isLeft ? () => live.retryNow() : undefined} />}
      {refused.map((sent) => (
        <RejectedRequest key={sent.id} live={live} sent={sent} />
      ))}
    </>
  );
}

function RejectedRequest({ live, sent }: { live: LiveSession; sent: PendingRequest }) {
  const written = messageIn(sent.request);
  const isAgain = canResend(sent.request, live);
  const text = written?.content ?? otherTextIn(sent.request);
  const isTooLong = tooLongError({ ...sent.request, id: sent.id }) !== undefined;
  const again = () => {
    if (isAgain) return live.resendRequest(sent.id);
    live.dropRequest(sent.id);
    if (written) live.message(written.content, written.mode ?? "queue", written.attachments);
  };
  const [isAttaching, setIsAttaching] = useState(false);
  const [why, setWhy] = useState<string | null>(null);
  const isEnded = live.state.value.agentState === "ended";
  const attach = async () => {
    if (!written) return;
    const uploads = uploadsOf(live.id);
    setIsAttaching(true);
    const problem = await uploads.add([new File([written.content], "message.txt", { type: "text/plain" })], null);
    setIsAttaching(false);
    setWhy(problem);
    // The user may have left and reopened the session. The newer screen then shows the file.
    const now = currentLive.peek()?.id === live.id ? currentLive.peek()! : live;
    // The text stays until the file is uploaded, and in an ended session for good.
    if (problem !== null || now.state.peek().agentState === "ended") return;
    uploads.take(written.attachments ?? []);
    now.dropRequest(sent.id);
  };
  return (
    <div class="problem" role="alert">
      <span>
        <BacktickText text={decidedBefore(sent.request, live) ?? sent.rejection ?? ""} />
        {text && (
          <q class="muted" dir="auto" tabIndex={0}>
            {text}
          </q>
        )}
        {/* In an open session the attachment list shows the problem. */}
        {isEnded && why !== null && ` Couldn't attach it: ${why}.`}
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
      <button type="button" class="button" onClick={() => live.dropRequest(sent.id)}>
        Dismiss
      </button>
    </div>
  );
}

/**
 * Reports if the same request can be sent again. An edit cannot after its message left the queue.
 */
function canResend(request: ClientRequest, live: LiveSession): boolean {
  if (request.action !== "edit_queue") return request.action === "message" || request.action === "run";
  const { item, content } = request.args;
  return content !== undefined && live.state.value.queue.some((queued) => queued.item === item);
}

/** Returns other typed text of a request. */
function otherTextIn(request: ClientRequest): string | undefined {
  if (request.action === "run") return request.args.command;
  return request.action === "confirm" ? (request.args.reason ?? editedText(request.args.input)) : undefined;
}

/** Returns the text of a changed call. */
function editedText(input: unknown): string | undefined {
  const { command, content, url } = (input ?? {}) as Record<string, unknown>;
  return [command, content, url].find((text) => typeof text === "string");
}

/** Returns the decision that preceded an answer, with its author. */
function decidedBefore(request: ClientRequest, live: LiveSession): string | undefined {
  if (request.action !== "confirm") return undefined;
  const first = live.state.value.decisions.find((decision) => decision.request === request.args.request);
  return first && `Already decided: ${decisionText(first)}`;
}

/** Returns the message of a request. An edit can be sent as a new message. */
function messageIn(request: ClientRequest): Extract<ClientRequest, { action: "message" }>["args"] | null {
  if (request.action === "message") return request.args;
  if (request.action === "edit_queue" && request.args.content !== undefined) return { content: request.args.content, mode: "queue" };
  return null;
}
