// Code in a message. Plain while it grows, and until the lazy bundle brings colours and buttons.

import { useEffect, useMemo } from "preact/hooks";
import { lazyBundle, loadLazy } from "../loadLazy";

/** Lines shown of a long text. */
export const FOLDED_LINES = 24;

interface FenceProps {
  text: string;
  language: string | undefined;
  /** True while more may come. */
  open: boolean;
}

export function Fence({ text, language, open }: FenceProps) {
  useEffect(() => void (open || loadLazy()), [open]);
  const { CodeBlock, plainLines } = lazyBundle.value ?? {};
  const lines = useMemo(() => (open || !plainLines ? null : text === "" ? [] : plainLines(text)), [text, open, plainLines]);
  const codeClass = language && `language-${language}`;
  if (lines && CodeBlock) return <CodeBlock label="Code" lines={lines} language={language} text={text} codeClass={codeClass} />;
  const code = text.replace(/\n$/, "");
  const shown = open ? code : code.split("\n", FOLDED_LINES).join("\n");
  return (
    <div class="code-block">
      <pre dir="ltr">
        <code class={codeClass}>{text && `${shown}\n`}</code>
      </pre>
    </div>
  );
}
