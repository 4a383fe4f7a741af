// Unaccepted requests and drafts in browser storage, so that typed text survives the page.

import { storeText } from "../storage";
import type { ClientRequest } from "../wire/frame";
import type { PendingRequest } from "./screenState";

/** Key of a request. One key each, so two tabs on a session do not overwrite each other. */
const keyOf = (session: string, id = ""): string => `greenroom.unsent.${session}.${id}`;

/** Key of a session's message draft. */
export const draftKey = (session: string): string => `greenroom.draft.${session}`;
/** Key of the draft's files. */
export const filesKey = (session: string): string => `${draftKey(session)}.files`;
/** Key of the command draft. */
export const commandKey = (session: string): string => `${draftKey(session)}.command`;
/** Key of the newest event that this browser has shown of a session. */
export const seenKey = (session: string): string => `greenroom.seen.${session}`;
/** Key of an unsaved edit of a queued message. */
export const queueEditKey = (session: string, item = ""): string => `${draftKey(session)}.change.${item}`;

/** Stored form of a pending request. Two stored fields keep their former names. */
type StoredRequest = Omit<PendingRequest, "request" | "rejection"> & { at: number; "wish": ClientRequest; "refusal"?: string };

function requestJson({ request, rejection, ...rest }: PendingRequest, at: number): string {
  const stored: StoredRequest = { at, ...rest, "wish": request, ...(rejection !== undefined && { "refusal": rejection }) };
  return JSON.stringify(stored);
}

/** Returns the stored requests in the order of writing. */
export function storedRequests(session: string): PendingRequest[] {
  return keysWithPrefix(keyOf(session))
    .flatMap((key) => {
      try {
        return [JSON.parse(localStorage.getItem(key) ?? "") as StoredRequest];
      } catch {
        return [];
      }
    })
    .sort((a, b) => a.at - b.at)
    .map(({ at: _, "wish": request, "refusal": rejection, ...rest }) => ({ ...rest, request, ...(rejection !== undefined && { rejection }) }));
}

/** Stores new and rejected requests, and removes accepted and discarded ones. */
export function storePending(session: string, before: readonly PendingRequest[], after: readonly PendingRequest[]): void {
  const waiting = after.filter(isStored);
  for (const [n, sent] of waiting.entries()) {
    if (!before.includes(sent)) storeText(keyOf(session, sent.id), requestJson(sent, Date.now() + n));
  }
  for (const { id } of before.filter(isStored)) {
    if (!waiting.some((sent) => sent.id === id)) storeText(keyOf(session, id), "");
  }
}

/** Removes all stored texts of a session that no longer exists. */
export function forgetSession(session: string): void {
  for (const key of [seenKey(session), draftKey(session), ...keysWithPrefix(`${draftKey(session)}.`), ...keysWithPrefix(keyOf(session))]) storeText(key, "");
}

/** Returns the stored keys with a prefix. */
export function keysWithPrefix(start: string): string[] {
  return Object.keys(localStorage).filter((key) => key.startsWith(start));
}

function isStored({ request, seq }: PendingRequest): boolean {
  return seq === undefined && isTyped(request);
}

/**
 * Reports if a request holds typed text. A pressed button is not stored, because its meaning may
 * change.
 */
function isTyped(request: ClientRequest): boolean {
  switch (request.action) {
    case "message":
    case "run":
      return true;
    case "edit_queue":
      return request.args.content !== undefined;
    case "confirm":
      return request.args.reason !== undefined || request.args.input !== undefined;
    default:
      return false;
  }
}
