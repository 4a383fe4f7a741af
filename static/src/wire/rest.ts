// REST calls of the first view. `lazyRest.ts` has the others. The browser adds the cookie, and each
// call the secret.

import { signal } from "@preact/signals";
import { serverAddress } from "../basePath";
import { syncClock } from "../clock";
import type { ApprovalMode, ReasoningEffort, SessionEvent } from "./event";
import type { Session } from "./frame";
import { secretHeaders } from "./secret";

/** True without a secret, and after the server rejected this browser. */
export const signedOut = signal(false);

/** Failed REST call, with a text for the user. */
export class RestError extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** Error code of the server. Absent in answers of others, for example a proxy. */
    readonly code?: string,
  ) {
    super(message);
  }

  /**
   * Reports if the server itself answered 404. A proxy also answers 404 when its upstream is down.
   */
  get isNotFound(): boolean {
    return this.status === 404 && this.code === "not_found";
  }
}

export interface SessionListPage {
  items: Session[];
  next_cursor: string | null;
  total: number;
}

export const listSessions = (q: string, archived: boolean, limit: number, signal: AbortSignal): Promise<SessionListPage> =>
  call("GET", `/sessions?${new URLSearchParams({ q, archived: String(archived), limit: String(limit) })}`, { signal });

export interface OfferedModel {
  name: string;
  demo: boolean;
  takes_images: boolean;
  /** Environment variable that the server lacks for the model. */
  needs?: string;
}

/** Options that the server offers. */
export interface ServerOptions {
  /** Version of the server. */
  version: string;
  agents: { name: string }[];
  models: OfferedModel[];
  limits: { upload_bytes: number; memory_bytes: number; cpus: number };
  defaults: { agent: string; model: string; effort: ReasoningEffort | null; image: string; budget_usd: number | null; mode?: ApprovalMode; analyzer?: string };
  /** Names of the security analyzers. Absent on servers of earlier versions. */
  analyzers?: string[];
  /** Month of the last check of the prices. */
  prices_as_of: string;
  sandbox: { driver: string; isolation: string; network: string };
}

export const getOptions = (): Promise<ServerOptions> => call("GET", "/options");

export const getSession = (id: string): Promise<Session> => call("GET", sessionPath(id));

/** Returns the newest events. The session socket waits for this call, so its timeout is short. */
export const newestEvents = async (id: string, count: number): Promise<SessionEvent[]> =>
  (await call<{ items: SessionEvent[] }>("GET", `${sessionPath(id)}/events?last=${count}`, { silenceMs: 2000 })).items;

export const sessionPath = (id: string) => `/sessions/${encodeURIComponent(id)}`;

/**
 * Returns the address of a file in the workspace. Returns `undefined` for a path that leads
 * elsewhere: the browser resolves dots.
 */
export function fileAddress(session: string, path: string): string | undefined {
  const parts = path.split("/");
  if (parts.some((part) => part === "" || part === "." || part === "..")) return undefined;
  return serverAddress(`/api${sessionPath(session)}/files/${parts.map(encodeURIComponent).join("/")}`);
}

/**
 * Limit of silence in milliseconds. A network can disappear without an error, for example after
 * sleep.
 */
const SILENCE_MS = 10_000;

interface CallOptions {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Replaces `SILENCE_MS`. */
  silenceMs?: number;
}

export async function call<T>(method: string, path: string, more: CallOptions = {}): Promise<T> {
  const { response, text } = await fetchWithTimeout(method, path, more);
  syncClock(response.headers.get("date"), "rough");
  if (response.status === 401) signedOut.value = true;
  if (!response.ok) throw errorFrom(response.status, text);
  return parse(text) as T;
}

async function fetchWithTimeout(method: string, path: string, { body, headers, signal, silenceMs = SILENCE_MS }: CallOptions) {
  const isRead = method === "GET";
  const limit = new AbortController();
  const giveUp = () => limit.abort();
  signal?.addEventListener("abort", giveUp);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const restartTimer = () => {
    clearTimeout(timer);
    // Only reads have a limit. A write may take its time and completes even if nobody waits.
    if (isRead) timer = setTimeout(giveUp, silenceMs);
  };
  try {
    restartTimer();
    const response = await fetch(serverAddress(`/api${path}`), {
      method,
      credentials: "same-origin",
      // The server rejects writes without a JSON type, even without a body. HTML forms cannot send
      // that type.
      headers: { ...secretHeaders(), ...(!isRead && { "Content-Type": "application/json" }), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: limit.signal,
    });
    return { response, text: await readText(response, restartTimer) };
  } catch {
    throw new RestError(0, "no reply from the server; check that greenroom runs");
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Reads an answer chunk by chunk. A long answer on a slow line outlasts the silence limit, and the
 * connection may break within.
 */
async function readText({ body }: Response, onChunk: () => void): Promise<string> {
  const pieces = body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (pieces) {
    onChunk();
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

/** Returns the error of an answer, with the server's text if present. */
export function errorFrom(status: number, text: string): RestError {
  const error = (parse(text) as { error?: { code?: unknown; message?: unknown } } | null | undefined)?.error;
  const message = typeof error?.message === "string" ? error.message : `the server answered ${status}`;
  return new RestError(status, message, typeof error?.code === "string" ? error.code : undefined);
}
