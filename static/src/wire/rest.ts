// The REST calls that the UI makes. The cookie travels by itself.

import { signal } from "@preact/signals";
import type { Event } from "./event";
import type { Session } from "./frame";

/** Whether the server has said that this browser holds no valid cookie. */
export const signedOut = signal(false);

/** A request that was not carried out, in words for a person. */
export class RequestError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export interface SessionPage {
  items: Session[];
  next_cursor: string | null;
  total: number;
}

export const listSessions = (q: string, archived: boolean, limit: number): Promise<SessionPage> =>
  call("GET", `/sessions?${new URLSearchParams({ q, archived: String(archived), limit: String(limit) })}`);

export const getSession = (id: string): Promise<Session> => call("GET", sessionPath(id));

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
  call("POST", "/sessions", session, { "Idempotency-Key": key });

export const sendMessage = (id: string, message: { content: string; attachments?: string[] }, key: string): Promise<void> =>
  call("POST", `${sessionPath(id)}/messages`, message, { "Idempotency-Key": key });

/** Where a session can be downloaded from. */
export const exportAddress = (id: string, format: "md" | "jsonl"): string => `/api${sessionPath(id)}/export?format=${format}`;

/** Events after a number, as many as fit into an answer: at most 1,000, and 1 MiB. */
export const getEvents = (id: string, after: number, limit: number): Promise<{ items: Event[] }> =>
  call("GET", `${sessionPath(id)}/events?${new URLSearchParams({ after: String(after), limit: String(limit) })}`);

export const newestEvents = async (id: string, count: number): Promise<Event[]> =>
  (await call<{ items: Event[] }>("GET", `${sessionPath(id)}/events?last=${count}`)).items;

export const sessionPath = (id: string) => `/sessions/${encodeURIComponent(id)}`;

export async function call<T>(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<T> {
  const response = await reach(method, path, body, headers);
  if (response.status === 401) signedOut.value = true;
  const text = await response.text();
  const answer = parse(text);
  if (!response.ok) throw new RequestError(response.status, errorText(answer) ?? `the server answered ${response.status}`);
  return answer as T;
}

async function reach(method: string, path: string, body?: unknown, headers?: Record<string, string>) {
  try {
    return await fetch(`/api${path}`, {
      method,
      credentials: "same-origin",
      // Writes are refused without a JSON type, also those without a body: no HTML form can send it.
      headers: method === "GET" ? headers : { "Content-Type": "application/json", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new RequestError(0, "the server does not answer; is greenroom running?");
  }
}

function parse(text: string): unknown {
  try {
    return text === "" ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

function errorText(answer: unknown): string | undefined {
  const error = (answer as { error?: { message?: unknown } } | undefined)?.error;
  return typeof error?.message === "string" ? error.message : undefined;
}
