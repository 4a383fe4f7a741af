// The REST calls of what nobody needs at first sight: beginning a session, its past, its menu, the server from inside.

import type { OpenApi } from "../state/openapi";
import type { Event } from "./event";
import type { Session } from "./frame";
import { call, RequestError, sessionPath, signedOut } from "./rest";

/** One live actor of the server. */
export interface Actor {
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

/** A sandbox of this server, and what it takes. */
export interface SandboxRow {
  session: string;
  driver: string;
  state: "running" | "frozen" | "exited";
  memory_bytes: number | null;
  /** Since it began, in microseconds. */
  cpu_us: number | null;
  processes: number | null;
}

/** What a new session may be told; what is left out is the server's choice. */
export interface NewSession {
  title?: string;
  task?: string;
  agent?: string;
  model?: string;
  image?: string;
  directory?: string;
  budget_usd?: number;
}

/** `key` makes a retry safe: the same key leads to the same session. */
export const createSession = (session: NewSession, key: string): Promise<Session> =>
  call("POST", "/sessions", { body: session, headers: { "Idempotency-Key": key } });

export const sendMessage = (id: string, message: { content: string; attachments?: string[] }, key: string): Promise<void> =>
  call("POST", `${sessionPath(id)}/messages`, { body: message, headers: { "Idempotency-Key": key } });

/** Where a session can be downloaded from. */
export const exportAddress = (id: string, format: "md" | "jsonl"): string => `/api${sessionPath(id)}/export?format=${format}`;

/** Events after a number, as many as fit into an answer: at most 1,000, and 1 MiB. */
export const getEvents = (id: string, after: number, limit: number): Promise<{ items: Event[] }> =>
  call("GET", `${sessionPath(id)}/events?${new URLSearchParams({ after: String(after), limit: String(limit) })}`);

export const changeSession = (id: string, change: { title?: string; archived?: boolean }): Promise<Session> =>
  call("PATCH", sessionPath(id), { body: change });

export const endSession = (id: string): Promise<void> => call("DELETE", sessionPath(id));

export const resumeSession = (id: string): Promise<void> => call("POST", `${sessionPath(id)}/resume`);

export const purgeSession = (id: string): Promise<void> => call("DELETE", `${sessionPath(id)}?purge=true`);

export const listActors = (): Promise<{ items: Actor[] }> => call("GET", "/admin/actors");

export const listSandboxes = (): Promise<{ items: SandboxRow[] }> => call("GET", "/admin/sandboxes");

export const getOpenApi = (): Promise<OpenApi> => call("GET", "/openapi.json");

/** A text of this server. Another server's is refused, here and by the page's policy. */
export async function fetchText(address: string): Promise<string> {
  const url = new URL(address, location.href);
  if (url.origin !== location.origin) throw new RequestError(0, "it lies on another server");
  const response = await fetch(url, { credentials: "same-origin" });
  if (response.status === 401) signedOut.value = true;
  if (!response.ok) throw new RequestError(response.status, `the server answered ${response.status}`);
  return response.text();
}
