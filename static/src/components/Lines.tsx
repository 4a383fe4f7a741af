// Text in lines, as code.

import { useScrollFocus } from "../dom/scrollFocus";

export function Lines({ label, text }: { label: string; text: string }) {
  return (
    <pre class="code" ref={useScrollFocus(label, text)}>
      {text}
    </pre>
  );
}
