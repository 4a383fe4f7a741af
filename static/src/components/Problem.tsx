// Something went wrong: what, and a way out.

interface Props {
  text: string;
  onRetry?: () => void;
}

export function Problem({ text, onRetry }: Props) {
  return (
    <div class="problem" role="alert">
      <span>{text}</span>
      {onRetry && (
        <button type="button" class="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}
