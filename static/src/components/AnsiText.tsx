// What a program printed, in the colours that it asked for. Nothing else that a terminal can be told is done: no title, no
// clipboard, no link, no cursor that wanders.

import { coloured } from "../state/ansi";

export function AnsiText({ text }: { text: string }) {
  const pieces = coloured(text);
  if (pieces.length === 0) return null;
  return (
    <pre class="ansi">
      {pieces.map(({ text, colours, look }, index) => (
        <span key={index} class={look} style={colours}>
          {text}
        </span>
      ))}
    </pre>
  );
}
