// Time that a request has been waiting, on the server's clock. Hidden from screen readers, which
// would count the seconds.

import { serverNow } from "../clock";
import { elapsed } from "../format";

export function WaitingTime({ since }: { since: string }) {
  const now = serverNow();
  const text = now === null ? "" : elapsed(Math.max(0, now - Date.parse(since)));
  return text === "" ? null : (
    <span class="confirm-time muted" aria-hidden="true" title={`Asked at ${new Date(since).toLocaleString()}`}>
      {text}
    </span>
  );
}
