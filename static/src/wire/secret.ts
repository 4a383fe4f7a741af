// Secret of this browser. A cookie is sent to every port of a host, so requests also carry a secret
// from origin-bound storage.

/** Id of the server's data directory. Servers that share an origin have a secret each. */
const serverId = (): string | undefined => document.documentElement.dataset.server;

const key = (): string => `greenroom-secret-${serverId() ?? ""}`;

/** Replaces storage that the browser denies. Lasts until the page closes. */
let unstored = "";

/** Returns the secret, as the newest sign-in in any tab left it. Empty if this browser has none. */
export function readSecret(): string {
  try {
    return localStorage.getItem(key()) ?? unstored;
  } catch {
    return unstored;
  }
}

/** Stores the secret of a sign-in. An empty secret removes the former one. */
export function storeSecret(secret: string): void {
  unstored = secret;
  try {
    if (secret) localStorage.setItem(key(), secret);
    else localStorage.removeItem(key());
  } catch {
    // The secret serves this page alone.
  }
}

/** Headers that authorize a request to this server. */
export function secretHeaders(): Record<string, string> {
  const secret = readSecret();
  return secret ? { "X-Greenroom-Secret": secret } : {};
}

/** WebSocket protocols to offer. A page can set no header of a handshake. */
export function socketProtocols(): string[] {
  const secret = readSecret();
  return secret ? ["greenroom", `secret.${secret}`] : ["greenroom"];
}

/** Reports if the server asks for a secret that this browser lacks. */
export const lacksSecret = (): boolean => serverId() !== undefined && readSecret() === "";

/** Calls `act` when a sign-in in another tab stores a secret. Returns a function that ends this. */
export function onOtherSignIn(act: () => void): () => void {
  const changed = (event: StorageEvent) => {
    if (event.key === key() && event.newValue) act();
  };
  addEventListener("storage", changed);
  return () => removeEventListener("storage", changed);
}
