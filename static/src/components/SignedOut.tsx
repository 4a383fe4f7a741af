// Page for a browser without a valid cookie.

import { PlainPage } from "./PlainPage";

export function SignedOut() {
  return (
    <PlainPage title="Open the link that greenroom printed">
      <p class="muted">
        At start, greenroom prints <code>listening on http://…/?token=…</code>. Open that link to sign in. Print the
        token again with <code>greenroom token</code>.
      </p>
      <p>
        <button type="button" class="button" onClick={() => location.reload()}>
          Reload the page
        </button>
      </p>
    </PlainPage>
  );
}
