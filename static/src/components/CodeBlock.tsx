// Finished code in a message, with highlighting and a copy button.

import type { VNode } from "preact";
import { useEffect } from "preact/hooks";
import { useScrollFocus } from "../dom/scrollFocus";

export function CodeBlock({ children }: { children: VNode }) {
  const box = useScrollFocus<HTMLPreElement>("Code");
  useEffect(() => void (box.current && decorate(box.current)), []);
  return <pre dir="ltr" ref={box}>{children}</pre>;
}

async function decorate(box: HTMLElement): Promise<void> {
  const code = box.querySelector("code");
  if (!code) return;
  // Browsers offer the clipboard only to secure pages.
  if (navigator.clipboard) box.append(copyButton(code.textContent ?? ""));
  // Without the highlighter, code stays plain.
  const loaded = await import("../markdown/highlight").catch(() => null);
  loaded?.highlight(code);
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
