// Text of an error or a notice. Parts between backticks are drawn as code.

/** Part between backticks within one line. */
const CODE = /`([^`\n]+)`/;

export function BacktickText({ text }: { text: string }) {
  // A split by a group alternates between text and code.
  return (
    <>
      {text.split(CODE).map((part, n, parts) =>
        n % 2 === 0 ? part : <code key={n} dir="ltr" class={n === 1 && parts[0] === "" ? "leading" : undefined}>{part}</code>,
      )}
    </>
  );
}
