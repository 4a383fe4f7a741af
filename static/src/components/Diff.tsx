// A unified diff, line by line.

import { useReach } from "../reach";

const KINDS: Record<string, string> = { "+": "added", "-": "removed", "@": "place" };

export function Diff({ text }: { text: string }) {
  const box = useReach<HTMLPreElement>("Diff", text);
  const all = text.replace(/\n$/, "").split("\n");
  // What stands before the first place names the file, which the call does already.
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
