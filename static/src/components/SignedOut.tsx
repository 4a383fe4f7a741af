// What stands where this browser holds no valid cookie: how to get one.

import { Page } from "./Page";

export function SignedOut() {
  return (
    <Page title="Open the link that greenroom printed">
      <p class="muted">
        When it starts, greenroom prints one line with a link: <code>listening on http://…/?token=…</code>. Opening that
        link signs this browser in. Where the line is gone, <code>greenroom token</code> prints the token again.
      </p>
      <p>
        <button type="button" class="button" onClick={() => location.reload()}>
          I have opened it
        </button>
      </p>
    </Page>
  );
}
