// Unified diff, line by line.

import { useScrollFocus } from "../dom/scrollFocus";

const KINDS: Record<string, string> = { "+": "added", "-": "removed", "@": "place" };

export function Diff({ text }: { text: string }) {
  const box = useScrollFocus<HTMLPreElement>("Diff", text);
  const all = text.replace(/\n$/, "").split("\n");
  // The file header is redundant: the call names the file.
  const lines = all.slice(Math.max(0, all.findIndex((line) => line.startsWith("@@"))));
  return (
    <pre class="diff" ref={box}>
      {lines.map((line, index) => (
        <div key={index} class={KINDS[line[0] ?? ""]}>
          {line || " "}
        </div>
      ))}
    </pre>
  );
}
