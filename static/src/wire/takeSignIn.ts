// Sign-in by link. Imported first: the token leaves the address before anything reads it.

import { storeSecret } from "./secret";

/** Stores the secret that came with a sign-in link, and removes the token from the address. */
function takeSignIn(): void {
  const given = document.getElementById("given");
  const secret = readGiven(given?.textContent ?? "");
  if (typeof secret !== "string") return;
  given!.textContent = "";
  storeSecret(secret);
  const rest = location.search.slice(1).split("&").filter((pair) => pair && !pair.startsWith("token="));
  history.replaceState(null, "", location.pathname + (rest.length > 0 ? `?${rest.join("&")}` : "") + location.hash);
}

/** Returns the secret. A page that broke off on its way has none. */
function readGiven(text: string): unknown {
  try {
    return (JSON.parse(text) as { secret?: unknown }).secret;
  } catch {
    return undefined;
  }
}

takeSignIn();
