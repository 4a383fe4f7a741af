// Something went wrong: what, and a way out.

interface Props {
  text: string;
  onRetry?: () => void;
  /** What that does, where it does something else. */
  retryLabel?: string;
}

export function Problem({ text, onRetry, retryLabel = "Try again" }: Props) {
  return (
    <div class="problem" role="alert">
      <span>{text}</span>
      {onRetry && (
        <button type="button" class="button" onClick={onRetry}>
          {retryLabel}
        </button>
      )}
    </div>
  );
}
