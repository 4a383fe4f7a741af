// Settings that affect the first paint. Cookies let the server render them into the page before the
// script runs.

import { basePath } from "./basePath";

const YEAR_S = 365 * 24 * 60 * 60;

/** Returns the stored value if it is among the `known` values. */
export function readCookie<T extends string>(name: string, known: readonly T[]): T | undefined {
  return known.find((value) => document.cookie.split("; ").includes(`${name}=${value}`));
}

/** Stores a value for a year. `null` removes the cookie. */
export function writeCookie(name: string, value: string | null): void {
  document.cookie = `${name}=${value ?? ""}; Path=${basePath || "/"}; SameSite=Lax; Max-Age=${value === null ? 0 : YEAR_S}`;
}
