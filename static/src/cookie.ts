// What the first picture depends on, before the script is there: kept in a cookie, so that the server can say it in the page.

const A_YEAR_S = 365 * 24 * 60 * 60;

/** What was kept under a name, if it is one of those that are known. */
export function readCookie<T extends string>(name: string, known: readonly T[]): T | undefined {
  return known.find((value) => document.cookie.split("; ").includes(`${name}=${value}`));
}

/** `null` is forgotten. */
export function keepCookie(name: string, value: string | null): void {
  document.cookie = `${name}=${value ?? ""}; Path=/; SameSite=Lax; Max-Age=${value === null ? 0 : A_YEAR_S}`;
}
