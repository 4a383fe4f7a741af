// From frames to what the screen knows. Pure: no clock, no socket, no DOM; the same frames lead to the same state.

import type { Event } from "../wire/event";
import { isEvent, type ErrorFrame, type ServerFrame, type Status, type Wish } from "../wire/frame";
import { checked } from "../wire/shape";
import { UNREADABLE, type Refusal } from "../wire/socket";
import { applyAction } from "./actions";
import { applyDelta } from "./deltas";
import { enter } from "./activity";
import { applyObservation } from "./observations";
import { empty, isOnItsWay, whyUnreadable, type SessionState } from "./session";

/** What happens on this side of the socket. */
export type Local =
  | { local: "opened" }
  | { local: "lost"; retryAt: number }
  | { local: "refused"; why: Refusal }
  /** With a `refusal` it was not even sent. */
  | { local: "sent"; id: string; wish: Wish; refusal?: string | undefined }
  | { local: "dropped"; id: string }
  /** A recording begins anew. */
  | { local: "rewound" }
  /** The server's data were put back from a backup that knows less. */
  | { local: "set_back" };

export type Input = ServerFrame | Local;

/** Applies a batch. The state that comes in is not changed. */
export function reduce(state: SessionState, inputs: readonly Input[]): SessionState {
  const draft = { ...state, rows: state.rows.slice(), sending: state.sending.slice() };
  for (const input of inputs) apply(draft, input);
  return draft;
}

function apply(draft: SessionState, input: Input): void {
  if (isEvent(input)) applyEvent(draft, input);
  else if ("local" in input) applyLocal(draft, input);
  else if ("delta" in input) applyDelta(draft, input);
  else if ("status" in input) applyStatus(draft, input);
  else if ("error" in input) applyError(draft, input);
}

function applyEvent(draft: SessionState, unchecked: Event): void {
  if (unchecked.seq <= draft.lastSeq) return;
  const event = checked(unchecked);
  draft.lastSeq = event.seq;
  draft.lastAt = event.at;
  if (draft.connection.phase === "live") draft.trouble = null;
  if ("action" in event) applyAction(draft, event);
  else applyObservation(draft, event);
  draft.sending = draft.sending.filter((sent) => sent.seq === undefined || sent.seq > draft.lastSeq);
}

function applyStatus(draft: SessionState, frame: Status): void {
  switch (frame.status) {
    case "hello":
      if (draft.connection.phase !== "recorded") draft.connection = { phase: "replaying" };
      draft.replayFrom = draft.lastSeq;
      draft.trouble = null;
      if (frame.session) {
        draft.session = frame.session;
        // The events know it better, and may have come before.
        draft.model ??= frame.session.model ?? null;
        draft.reason = frame.session.reason ?? null;
      }
      enter(draft, frame.state ?? frame.session?.state ?? draft.agentState);
      return;
    case "synced":
      if (draft.connection.phase === "recorded") return;
      draft.connection = { phase: "live" };
      if (draft.connections > 1) {
        draft.caughtUp = { events: draft.lastSeq - draft.replayFrom, at: draft.connections };
      }
      return;
    case "accepted":
      draft.sending = draft.sending.flatMap((sent) => {
        if (sent.id !== frame.id) return [sent];
        return frame.seq !== undefined && frame.seq > draft.lastSeq ? [{ ...sent, seq: frame.seq }] : [];
      });
      return;
    case "pong":
    case "closing":
      return;
  }
}

function applyError(draft: SessionState, frame: ErrorFrame): void {
  // That it can only be read is of the session, whatever was asked of it.
  if (frame.id === undefined || frame.error.code === UNREADABLE) draft.trouble = frame.error.message;
  draft.sending = draft.sending.flatMap((sent) => {
    if (sent.id !== frame.id) return [sent];
    // What was to be stopped has ended by itself: nobody needs to be told that they have what they want.
    return frame.error.code === "nothing_to_interrupt" ? [] : [{ ...sent, refusal: frame.error.message }];
  });
}

function applyLocal(draft: SessionState, input: Local): void {
  switch (input.local) {
    case "opened":
      draft.connections += 1;
      return;
    case "lost":
      draft.connection = { phase: "lost", retryAt: input.retryAt };
      return;
    case "refused":
      draft.connection = { phase: "refused", why: input.why };
      if (input.why === "unreadable") forsake(draft);
      return;
    case "sent": {
      const { id, wish, refusal } = input;
      const sent = { id, wish, ...(refusal !== undefined && { refusal }) };
      draft.sending = [...draft.sending.filter((other) => other.id !== id), sent];
      return;
    }
    case "dropped":
      draft.sending = draft.sending.filter((sent) => sent.id !== input.id);
      return;
    case "set_back": {
      const { connections } = draft;
      // What was taken since then, that backup has not.
      const sending = draft.sending.map(({ seq: _, ...sent }) => sent);
      Object.assign(draft, { ...empty, rows: [], connections, sending });
      return;
    }
    case "rewound":
      Object.assign(draft, { ...empty, rows: [], sending: [], connection: { phase: "recorded" } });
      return;
  }
}

/** Nobody goes on with it. It is at nothing, whatever it was at when it was left, and what is on its way will not be taken. */
function forsake(draft: SessionState): void {
  const refusal = whyUnreadable(draft);
  draft.caughtUp = null;
  enter(draft, null);
  draft.sending = draft.sending.map((sent) => (isOnItsWay(sent) ? { ...sent, refusal } : sent));
}
