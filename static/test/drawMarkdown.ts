// What is drawn of markdown, as a browser would write it down.

import { render } from "preact";
import { advance, noBlocks, type Part } from "../src/markdown/blocks";

export function drawn(blocks: Part): Element {
  const root = document.createElement("div");
  render(blocks, root);
  return root;
}

/** Without which way its texts go. */
export function htmlOf(blocks: Part): string {
  return drawn(blocks).innerHTML.replace(/ dir="\w+"/g, "");
}

/** Of a text that has come to its end. */
export function whole(markdown: string): Part {
  return advance(noBlocks, markdown, false).parts.flat();
}
