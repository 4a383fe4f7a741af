// Sign-out of this browser.

import { call, signedOut } from "../wire/rest";
import { storeSecret } from "../wire/secret";

/** Signs this browser out and shows the sign-in page. Fails if the server does not answer. */
export async function signOut(): Promise<void> {
  await call("POST", "/sign-out");
  storeSecret("");
  signedOut.value = true;
}
