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
    /** The server's own word for why. What was said by others, as by a proxy before it, has none. */
    readonly code?: string,
  ) {
    super(message);
  }

  /** Whether the server says so itself: a proxy answers 404, too, where it finds nobody behind it. */
  get isNotFound(): boolean {
    return this.status === 404 && this.code === "not_found";
  }
}

export interface SessionPage {
  items: Session[];
  next_cursor: string | null;
  total: number;
}

export const listSessions = (q: string, archived: boolean, limit: number, signal: AbortSignal): Promise<SessionPage> =>
  call("GET", `/sessions?${new URLSearchParams({ q, archived: String(archived), limit: String(limit) })}`, { signal });

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

/** A session's socket waits for them, and brings them itself where they do not come. */
export const newestEvents = async (id: string, count: number): Promise<Event[]> =>
  (await call<{ items: Event[] }>("GET", `${sessionPath(id)}/events?last=${count}`, { silence: 2000 })).items;

export const sessionPath = (id: string) => `/sessions/${encodeURIComponent(id)}`;

/** So long nothing may come of an answer, in milliseconds: a network may be gone without a word, as after a sleep. */
const SILENCE_MS = 10_000;

interface Call {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** In place of `SILENCE_MS`. */
  silence?: number;
}

export async function call<T>(method: string, path: string, more: Call = {}): Promise<T> {
  const { response, text } = await reach(method, path, more);
  if (response.status === 401) signedOut.value = true;
  if (!response.ok) throw refusal(response.status, text);
  return parse(text) as T;
}

async function reach(method: string, path: string, { body, headers, signal, silence = SILENCE_MS }: Call) {
  const isRead = method === "GET";
  const limit = new AbortController();
  const giveUp = () => limit.abort();
  signal?.addEventListener("abort", giveUp);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const heard = () => {
    clearTimeout(timer);
    // What changes something may take its time, and is done even if nobody waits for it.
    if (isRead) timer = setTimeout(giveUp, silence);
  };
  try {
    heard();
    const response = await fetch(`/api${path}`, {
      method,
      credentials: "same-origin",
      // Writes are refused without a JSON type, also those without a body: no HTML form can send it.
      headers: isRead ? headers : { "Content-Type": "application/json", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: limit.signal,
    });
    return { response, text: await textOf(response, heard) };
  } catch {
    throw new RequestError(0, "the server does not answer; is greenroom running?");
  } finally {
    clearTimeout(timer);
  }
}

/** Piece by piece: a long answer over a slow line takes longer than any silence. The connection may break within it, too. */
async function textOf({ body }: Response, heard: () => void): Promise<string> {
  const pieces = body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (pieces) {
    heard();
    const { done, value } = await pieces.read();
    if (done) break;
    text += value;
  }
  return text;
}

function parse(text: string): unknown {
  try {
    return text === "" ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** What an answer with such a status says of why, where the server has written it. */
export function refusal(status: number, text: string): RequestError {
  const error = (parse(text) as { error?: { code?: unknown; message?: unknown } } | null | undefined)?.error;
  const message = typeof error?.message === "string" ? error.message : `the server answered ${status}`;
  return new RequestError(status, message, typeof error?.code === "string" ? error.code : undefined);
}
