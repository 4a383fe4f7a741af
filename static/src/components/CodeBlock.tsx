// A piece of finished code in a message. When it is on the screen, it gets its colours and a button that copies it.

import type { VNode } from "preact";
import { useEffect } from "preact/hooks";
import { useReach } from "../reach";

export function Code({ children }: { children: VNode }) {
  const box = useReach<HTMLPreElement>("Code");
  useEffect(() => void (box.current && dress(box.current)), []);
  return <pre dir="ltr" ref={box}>{children}</pre>;
}

async function dress(box: HTMLElement): Promise<void> {
  const code = box.querySelector("code");
  if (!code) return;
  // Browsers offer the clipboard to secure pages only.
  if (navigator.clipboard) box.append(copyButton(code.textContent ?? ""));
  // Code without colours can be read as well.
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
