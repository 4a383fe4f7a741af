// The REST calls of what is there at first sight; `manage.ts` has the others. The cookie travels by itself.

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

/** What the server offers. */
export interface Options {
  agents: { name: string }[];
  /** `needs`: the environment variable that the server lacks for it. */
  models: { name: string; demo: boolean; needs?: string }[];
  limits: { upload_bytes: number; memory_bytes: number; cpus: number };
  defaults: { agent: string; model: string; image: string };
  sandbox: { driver: string; isolation: string; network: string };
}

export const getOptions = (): Promise<Options> => call("GET", "/options");

export const getSession = (id: string): Promise<Session> => call("GET", sessionPath(id));

export const newestEvents = async (id: string, count: number): Promise<Event[]> =>
  (await call<{ items: Event[] }>("GET", `${sessionPath(id)}/events?last=${count}`)).items;

export const sessionPath = (id: string) => `/sessions/${encodeURIComponent(id)}`;

export async function call<T>(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<T> {
  const { response, text } = await reach(method, path, body, headers);
  if (response.status === 401) signedOut.value = true;
  const answer = parse(text);
  if (!response.ok) throw new RequestError(response.status, errorText(answer) ?? `the server answered ${response.status}`);
  return answer as T;
}

async function reach(method: string, path: string, body?: unknown, headers?: Record<string, string>) {
  try {
    const response = await fetch(`/api${path}`, {
      method,
      credentials: "same-origin",
      // Writes are refused without a JSON type, also those without a body: no HTML form can send it.
      headers: method === "GET" ? headers : { "Content-Type": "application/json", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    // The connection may break within it, too.
    return { response, text: await response.text() };
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
