// The REST calls of what nobody needs at first sight: menus, options, the server from inside.

import type { OpenApi } from "../state/openapi";
import type { Session } from "./frame";
import { call, RequestError, sessionPath, signedOut } from "./rest";

/** What the server offers. */
export interface Options {
  agents: { name: string }[];
  /** `needs`: the environment variable that the server lacks for it. */
  models: { name: string; demo: boolean; needs?: string }[];
  limits: { upload_bytes: number; memory_bytes: number; cpus: number };
  defaults: { agent: string; model: string; image: string };
  sandbox: { driver: string; isolation: string; network: string };
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

export const getOptions = (): Promise<Options> => call("GET", "/options");

export const changeSession = (id: string, change: { title?: string; archived?: boolean }): Promise<Session> =>
  call("PATCH", sessionPath(id), change);

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
