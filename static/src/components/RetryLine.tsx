// Quiet line while a model call waits for its next attempt.

import type { LiveSession } from "../state/liveSession";
import { retryText } from "../state/retry";

export function RetryLine({ live }: { live: LiveSession }) {
  const { retry } = live.state.value;
  if (!retry) return null;
  return (
    <div class="row notice quiet" role="status">
      <span title={retry.why}>{retryText(retry)}</span>
    </div>
  );
}
