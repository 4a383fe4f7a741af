// Program output in its colours. No other terminal feature works: no title, clipboard, link or
// cursor movement.

import { colouredTexts } from "../state/ansi";

export function AnsiText({ text }: { text: string }) {
  const pieces = colouredTexts(text);
  if (pieces.length === 0) return null;
  return (
    <pre class="ansi">
      {pieces.map(({ text, colours, className }, index) => (
        <span key={index} class={className} style={colours}>
          {text}
        </span>
      ))}
    </pre>
  );
}
