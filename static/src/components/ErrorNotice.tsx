// Error with its text and a way out.

import { BacktickText } from "./BacktickText";

interface ErrorNoticeProps {
  text: string;
  onRetry?: () => void;
  /** Label of the action, if not a retry. */
  retryLabel?: string;
}

export function ErrorNotice({ text, onRetry, retryLabel = "Try again" }: ErrorNoticeProps) {
  return (
    <div class="problem" role="alert">
      <span>
        <BacktickText text={text} />
      </span>
      {onRetry && (
        <button type="button" class="button" onClick={onRetry}>
          {retryLabel}
        </button>
      )}
    </div>
  );
}
