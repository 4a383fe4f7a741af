// REST calls that the first view does not need: new sessions, earlier events, session menu, admin.

import { serverAddress } from "../basePath";
import type { OpenApiDocument } from "../state/openapi";
import type { ApprovalMode, EffortChoice, EventOrigin, SessionEvent } from "./event";
import type { Session } from "./frame";
import { call, RestError, sessionPath, signedOut } from "./rest";
import { secretHeaders } from "./secret";

/** Live actor of the server. */
export interface ActorRow {
  kind: string;
  id: string;
  session?: string | null;
  node?: string | null;
  state?: string | null;
  since: string;
  last_active: string;
  handled: number;
  queued?: number | null;
}

/** Sandbox of this server with its resource use. */
export interface SandboxRow {
  session: string;
  driver: string;
  state: "running" | "frozen" | "exited";
  memory_bytes: number | null;
  /** CPU time since the start, in microseconds. */
  cpu_us: number | null;
  processes: number | null;
}

/** Options of a new session. The server chooses omitted ones. */
export interface NewSession {
  title?: string;
  task?: string;
  agent?: string;
  model?: string;
  effort?: EffortChoice;
  mode?: ApprovalMode;
  /** Name of the security analyzer. */
  analyzer?: string;
  image?: string;
  directory?: string;
  /** Repository to clone: an `https` address, or a path on the server's host. */
  repo?: string;
  /** Branch, tag or commit of `repo`. */
  ref?: string;
  budget_usd?: number;
}

/** Creates a session. The same `key` leads to the same session, so retries are safe. */
export const createSession = (session: NewSession, key: string): Promise<Session> =>
  call("POST", "/sessions", { body: session, headers: { "Idempotency-Key": key } });

export const sendMessage = (id: string, message: { content: string; attachments?: string[] }, key: string): Promise<void> =>
  call("POST", `${sessionPath(id)}/messages`, { body: message, headers: { "Idempotency-Key": key } });

/** Address of a session's export. */
export const exportAddress = (id: string, format: "md" | "jsonl"): string => serverAddress(`/api${sessionPath(id)}/export?format=${format}`);

/** Returns events after a number, at most 1,000 and 1 MiB. */
export const getEvents = (id: string, after: number, limit: number): Promise<{ items: SessionEvent[] }> =>
  call("GET", `${sessionPath(id)}/events?${new URLSearchParams({ after: String(after), limit: String(limit) })}`);

/** Event that contains a searched text. */
export interface FoundPassage {
  session: string;
  title: string;
  archived: boolean;
  seq: number;
  at: string;
  source: EventOrigin;
  /** Name of the event's kind. */
  kind: string;
  /** Plain text in one line. */
  snippet: string;
  /** Start and end of each match in the snippet. */
  matches: [number, number][];
}

/** Part of a search. It continues at `next_cursor`, even without a hit so far. */
export interface FoundPassagePage {
  items: FoundPassage[];
  next_cursor: string | null;
  /** Number of sessions whose journal could not be read. */
  unreadable: number;
}

/** Searches the messages and commands of all sessions. */
export const searchPassages = (q: string, cursor: string | null, signal: AbortSignal): Promise<FoundPassagePage> =>
  call("GET", `/search?${new URLSearchParams({ q, ...(cursor !== null && { cursor }) })}`, { signal });

export const changeSession = (id: string, change: { title?: string; archived?: boolean }): Promise<Session> =>
  call("PATCH", sessionPath(id), { body: change });

export const endSession = (id: string): Promise<void> => call("DELETE", sessionPath(id));

export const resumeSession = (id: string): Promise<void> => call("POST", `${sessionPath(id)}/resume`);

export const purgeSession = (id: string): Promise<void> => call("DELETE", `${sessionPath(id)}?purge=true`);

export const listActors = (): Promise<{ items: ActorRow[] }> => call("GET", "/admin/actors");

export const listSandboxes = (): Promise<{ items: SandboxRow[] }> => call("GET", "/admin/sandboxes");

export const getOpenApi = (): Promise<OpenApiDocument> => call("GET", "/openapi.json");

/**
 * Fetches a text of this server. Other origins are rejected here and by the content security
 * policy.
 */
export const fetchText = async (address: string): Promise<string> => (await fetchFile(address)).text();

/** Fetches a picture of this server, to be shown from memory. */
export const fetchBlob = async (address: string, signal: AbortSignal): Promise<Blob> => (await fetchFile(address, signal)).blob();

async function fetchFile(address: string, signal?: AbortSignal): Promise<Response> {
  const url = new URL(address.startsWith("/") ? serverAddress(address) : address, location.href);
  // Another application may share the origin.
  if (url.origin !== location.origin || serverAddress(url.pathname) !== url.pathname) throw new RestError(0, "the file is on another server");
  const response = await fetch(url, { credentials: "same-origin", headers: secretHeaders(), signal });
  if (response.status === 401) signedOut.value = true;
  if (!response.ok) throw new RestError(response.status, `the server answered ${response.status}`);
  return response;
}
