// Quiet line while a model call waits for its next attempt, and the action after the last one.

import type { LiveSession } from "../state/liveSession";
import { retryMessage, retryText } from "../state/retry";

export function RetryLine({ live }: { live: LiveSession }) {
  const state = live.state.value;
  if (state.retry) {
    return (
      <div class="row notice quiet" role="status">
        <span title={state.retry.why}>{retryText(state.retry)}</span>
      </div>
    );
  }
  const again = retryMessage(state);
  if (!again) return null;
  return (
    <div class="row">
      <button type="button" class="button" onClick={() => live.message(again.text, "queue", again.attachments)}>
        Retry
      </button>
    </div>
  );
}
