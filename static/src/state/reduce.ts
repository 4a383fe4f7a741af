// Reducer from frames to screen state. Pure: no clock, no socket, no DOM. The same frames give the
// same state.

import type { SessionEvent } from "../wire/event";
import { isEvent, type ErrorFrame, type ServerFrame, type StatusFrame, type ClientRequest } from "../wire/frame";
import { checkEvent } from "../wire/eventShape";
import { UNREADABLE_CODE, type SocketEndReason } from "../wire/socket";
import { applyAction } from "./actions";
import { applyDelta } from "./deltas";
import { enterState } from "./activity";
import { applyObservation } from "./observations";
import { emptyState, isInFlight, unreadableReason, type ScreenState } from "./screenState";

/** Event on this side of the socket. */
export type LocalEvent =
  | { local: "opened" }
  | { local: "lost"; retryAt: number }
  | { local: "refused"; why: SocketEndReason }
  /** With a `rejection`, the request was not sent. */
  | { local: "sent"; id: string; request: ClientRequest; rejection?: string | undefined }
  | { local: "dropped"; id: string }
  /** A recording starts over. */
  | { local: "rewound" }
  /** The server's data was restored from an older backup. */
  | { local: "rolled_back" };

export type ReducerInput = ServerFrame | LocalEvent;

/** Applies a batch. The given state is not changed. */
export function reduce(state: ScreenState, inputs: readonly ReducerInput[]): ScreenState {
  const draft = { ...state, rows: state.rows.slice(), pending: state.pending.slice() };
  for (const input of inputs) apply(draft, input);
  return draft;
}

function apply(draft: ScreenState, input: ReducerInput): void {
  if (isEvent(input)) applyEvent(draft, input);
  else if ("local" in input) applyLocal(draft, input);
  else if ("delta" in input) {
    // A piece of the answer ends the wait for it.
    draft.retry = input.delta === "retry" ? input : input.delta === "output" ? draft.retry : null;
    if (input.delta !== "retry") applyDelta(draft, input);
  }
  else if ("status" in input) applyStatus(draft, input);
  else if ("error" in input) applyError(draft, input);
}

function applyEvent(draft: ScreenState, unchecked: SessionEvent): void {
  if (unchecked.seq <= draft.lastSeq) return;
  const event = checkEvent(unchecked);
  draft.lastSeq = event.seq;
  draft.lastAt = event.at;
  if (draft.connection.phase === "live") draft.problem = null;
  if ("action" in event) applyAction(draft, event);
  else applyObservation(draft, event);
  draft.pending = draft.pending.filter((sent) => sent.seq === undefined || sent.seq > draft.lastSeq);
}

function applyStatus(draft: ScreenState, frame: StatusFrame): void {
  switch (frame.status) {
    case "hello":
      if (draft.connection.phase !== "recorded") draft.connection = { phase: "replaying" };
      draft.replayFrom = draft.lastSeq;
      // The server repeats a wait that continues.
      draft.retry = null;
      draft.problem = null;
      if (frame.session) {
        draft.session = frame.session;
        // Events are more exact and may have arrived before.
        draft.model ??= frame.session.model ?? null;
        if (draft.effort === undefined) draft.effort = frame.session.effort;
        draft.reason = frame.session.reason ?? null;
        draft.mode = frame.session.mode ?? draft.mode;
      }
      enterState(draft, frame.state ?? frame.session?.state ?? draft.agentState);
      return;
    case "synced":
      if (draft.connection.phase === "recorded") return;
      draft.connection = { phase: "live" };
      if (draft.connections > 1) {
        draft.caughtUp = { events: draft.lastSeq - draft.replayFrom, at: draft.connections };
      }
      return;
    case "accepted":
      draft.pending = draft.pending.flatMap((sent) => {
        if (sent.id !== frame.id) return [sent];
        return frame.seq !== undefined && frame.seq > draft.lastSeq ? [{ ...sent, seq: frame.seq }] : [];
      });
      return;
    case "pong":
    case "closing":
      return;
  }
}

function applyError(draft: ScreenState, frame: ErrorFrame): void {
  // An unreadable session affects every request, so the error is not tied to one.
  if (frame.id === undefined || frame.error.code === UNREADABLE_CODE) draft.problem = frame.error.message;
  draft.pending = draft.pending.flatMap((sent) => {
    if (sent.id !== frame.id) return [sent];
    // The interrupt's target ended by itself, which is what the user asked for.
    return frame.error.code === "nothing_to_interrupt" ? [] : [{ ...sent, rejection: frame.error.message }];
  });
}

function applyLocal(draft: ScreenState, input: LocalEvent): void {
  switch (input.local) {
    case "opened":
      draft.connections += 1;
      return;
    case "lost":
      draft.connection = { phase: "lost", retryAt: input.retryAt };
      return;
    case "refused":
      draft.connection = { phase: "refused", why: input.why };
      if (input.why === "unreadable") endUnreadable(draft);
      return;
    case "sent": {
      const { id, request, rejection } = input;
      const sent = { id, request, ...(rejection !== undefined && { rejection }) };
      draft.pending = [...draft.pending.filter((other) => other.id !== id), sent];
      return;
    }
    case "dropped":
      draft.pending = draft.pending.filter((sent) => sent.id !== input.id);
      return;
    case "rolled_back": {
      const { connections } = draft;
      // The restored backup lacks requests accepted since then.
      const sending = draft.pending.map(({ seq: _, ...sent }) => sent);
      Object.assign(draft, { ...emptyState, rows: [], connections, pending: sending });
      return;
    }
    case "rewound":
      Object.assign(draft, { ...emptyState, rows: [], pending: [], connection: { phase: "recorded" } });
      return;
  }
}

/** Ends an unreadable session: no state, and pending requests are rejected. */
function endUnreadable(draft: ScreenState): void {
  const rejection = unreadableReason(draft);
  draft.caughtUp = null;
  enterState(draft, null);
  draft.pending = draft.pending.map((sent) => (isInFlight(sent) ? { ...sent, rejection } : sent));
}
