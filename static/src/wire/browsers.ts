// Sign-in of this browser, the list of signed-in browsers, and tickets.

import { basePath, withoutBase } from "../basePath";
import { call } from "./rest";
import { storeSecret } from "./secret";

/** Signed-in browser of this server. */
export interface SignedInRow {
  id: string;
  /** Program and system, such as `Firefox on Linux`. */
  name: string;
  created_at: string;
  last_seen_at: string;
  /** True for this browser. */
  current: boolean;
}

/** Signs this browser in. Fails with status 401 if the token is wrong. */
export async function signIn(token: string): Promise<void> {
  const { secret } = await call<{ secret: string }>("POST", "/sign-in", { body: { token } });
  storeSecret(secret);
}

export const listBrowsers = async (): Promise<SignedInRow[]> => (await call<{ items: SignedInRow[] }>("GET", "/browsers")).items;

export const signOutBrowser = (id: string): Promise<void> => call("DELETE", `/browsers/${encodeURIComponent(id)}`);

/** Returns an address of this server with a ticket. For a minute, it opens without a header. */
export async function ticketed(address: string): Promise<string> {
  const { pathname, search } = new URL(address, location.href);
  const { ticket } = await call<{ ticket: string }>("POST", "/tickets", { body: { path: withoutBase(basePath, pathname) + search } });
  return `${pathname}${search}${search ? "&" : "?"}ticket=${ticket}`;
}
