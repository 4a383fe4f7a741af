// A unified diff, line by line.

const KINDS: Record<string, string> = { "+": "added", "-": "removed", "@": "place" };

export function Diff({ text }: { text: string }) {
  const lines = text.replace(/\n$/, "").split("\n").filter((line) => !/^(---|\+\+\+) /.test(line));
  return (
    <pre class="diff">
      {lines.map((line, index) => (
        <div key={index} class={KINDS[line[0] ?? ""]}>
          {line || " "}
        </div>
      ))}
    </pre>
  );
}
