// The REST calls that the UI makes. The cookie travels by itself.

import { signal } from "@preact/signals";
import type { OpenApi } from "../state/openapi";
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

export const listSessions = (q: string, archived: boolean): Promise<SessionPage> =>
  call("GET", `/sessions?${new URLSearchParams({ q, archived: String(archived), limit: "100" })}`);

export const getSession = (id: string): Promise<Session> => call("GET", sessionPath(id));

/** `key` makes a retry safe: the same key leads to the same session. */
export const createSession = (task: string, key: string): Promise<Session> =>
  call("POST", "/sessions", { task }, { "Idempotency-Key": key });

export const changeSession = (id: string, change: { title?: string; archived?: boolean }): Promise<Session> =>
  call("PATCH", sessionPath(id), change);

export const endSession = (id: string): Promise<void> => call("DELETE", sessionPath(id));

export const purgeSession = (id: string): Promise<void> => call("DELETE", `${sessionPath(id)}?purge=true`);

export const listActors = (): Promise<{ items: Actor[] }> => call("GET", "/admin/actors");

export const getOpenApi = (): Promise<OpenApi> => call("GET", "/openapi.json");

const sessionPath = (id: string) => `/sessions/${encodeURIComponent(id)}`;

async function call<T>(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<T> {
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
