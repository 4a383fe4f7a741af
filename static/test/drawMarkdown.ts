// Rendered markdown as HTML.

import { render } from "preact";
import { advance, noBlocks, type BlockGroup } from "../src/markdown/blocks";

export function drawToElement(blocks: BlockGroup): Element {
  const root = document.createElement("div");
  render(blocks, root);
  return root;
}

/** Returns the HTML without text directions. */
export function htmlOf(blocks: BlockGroup): string {
  return drawToElement(blocks).innerHTML.replace(/ dir="\w+"/g, "");
}

/** Renders a finished text. */
export function drawFinished(markdown: string): BlockGroup {
  return advance(noBlocks, markdown, false).parts.flat();
}
