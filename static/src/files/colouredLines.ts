// Code colours of a text, line by line.

/** Text with the class of its colour. */
export interface ColouredPiece {
  text: string;
  className: string;
}

/** Returns the lines in their colours. `null`: the highlighter is not there. */
export async function colouredLines(text: string, language: string): Promise<ColouredPiece[][] | null> {
  const loaded = await import("../markdown/highlight").catch(() => null);
  if (!loaded) return null;
  const code = document.createElement("code");
  code.className = `language-${language}`;
  code.textContent = text;
  loaded.highlight(code);
  return splitLines(code);
}

/** Splits highlighted code into lines. Nested spans become one class list. */
export function splitLines(code: Element): ColouredPiece[][] {
  const lines: ColouredPiece[][] = [[]];
  const walk = (node: Node, className: string) => {
    if (node.nodeType === Node.TEXT_NODE) {
      for (const [n, text] of (node.textContent ?? "").split("\n").entries()) {
        if (n > 0) lines.push([]);
        if (text) lines.at(-1)!.push({ text, className });
      }
      return;
    }
    const inner = node === code ? "" : `${className} ${(node as Element).className}`.trim();
    for (const child of node.childNodes) walk(child, inner);
  };
  walk(code, "");
  return lines;
}
