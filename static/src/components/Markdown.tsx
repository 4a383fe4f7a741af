// Markdown that may still grow. Finished blocks keep their DOM.

import { useEffect, useRef } from "preact/hooks";
import { advance, expectGrowth, noBlocks } from "../markdown/blocks";

export function Markdown({ text, open }: { text: string; open: boolean }) {
  const blocks = useRef(noBlocks);
  const root = useRef<HTMLDivElement>(null);
  const { frozen, tail } = (blocks.current = advance(blocks.current, text, open));

  useEffect(() => {
    if (open) void expectGrowth();
  }, [open]);

  useEffect(() => {
    const fresh = root.current?.querySelectorAll<HTMLElement>(".block:not(.ready)") ?? [];
    for (const block of fresh) {
      block.classList.add("ready");
      void dress(block);
    }
  }, [frozen]);

  return (
    <div class="markdown" ref={root}>
      {frozen.map((html, index) => (
        <div key={index} class="block" dangerouslySetInnerHTML={{ __html: html }} />
      ))}
      {tail && <div key="tail" class="tail" dangerouslySetInnerHTML={{ __html: tail }} />}
    </div>
  );
}

/** Gives finished code its colours and a button that copies it. */
async function dress(block: HTMLElement): Promise<void> {
  const codes = block.querySelectorAll<HTMLElement>("pre > code");
  if (codes.length === 0) return;
  // Browsers offer the clipboard to secure pages only.
  if (navigator.clipboard) for (const code of codes) code.parentElement?.append(copyButton(code.textContent ?? ""));
  const { highlight } = await import("../markdown/highlight");
  codes.forEach(highlight);
}

function copyButton(text: string): HTMLButtonElement {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.onclick = async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  };
  return button;
}
