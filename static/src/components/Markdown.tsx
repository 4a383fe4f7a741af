// Markdown that may still grow. Finished blocks keep their DOM.

import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { advance, expectGrowth, noBlocks } from "../markdown/blocks";

export function Markdown({ text, open }: { text: string; open: boolean }) {
  const blocks = useRef(noBlocks);
  const drawn = useRef(new WeakMap<readonly string[], VNode>());
  const { parts, tail } = (blocks.current = advance(blocks.current, text, open));

  useEffect(() => {
    if (open) void expectGrowth();
  }, [open]);

  const view = (part: readonly string[], index: number) => {
    const known = drawn.current.get(part) ?? <div key={index}>{part.map((html, at) => <Block key={at} html={html} />)}</div>;
    drawn.current.set(part, known);
    return known;
  };
  return (
    <div class="markdown">
      {parts.map(view)}
      {tail && <div key="tail" class="block tail" dangerouslySetInnerHTML={{ __html: tail }} />}
    </div>
  );
}

function Block({ html }: { html: string }) {
  const block = useRef<HTMLDivElement>(null);
  useEffect(() => void (block.current && dress(block.current)), [html]);
  return <div class="block" ref={block} dangerouslySetInnerHTML={{ __html: html }} />;
}

/** Gives finished code its colours and a button that copies it. */
async function dress(block: HTMLElement): Promise<void> {
  const codes = block.querySelectorAll<HTMLElement>("pre > code");
  if (codes.length === 0) return;
  // Browsers offer the clipboard to secure pages only.
  if (navigator.clipboard) for (const code of codes) code.parentElement?.append(copyButton(code.textContent ?? ""));
  // Code without colours can be read as well.
  const loaded = await import("../markdown/highlight").catch(() => null);
  if (loaded) codes.forEach(loaded.highlight);
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
