// Growing markdown. Finished blocks keep their DOM.

import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { advance, loadMarkdownCloser, noBlocks, type BlockGroup } from "../markdown/blocks";

export function Markdown({ text, open }: { text: string; open: boolean }) {
  const blocks = useRef(noBlocks);
  const drawn = useRef(new WeakMap<BlockGroup, VNode>());
  const { parts, tail } = (blocks.current = advance(blocks.current, text, open));

  useEffect(() => {
    if (open) void loadMarkdownCloser();
  }, [open]);

  const view = (part: BlockGroup, index: number) => {
    const known = drawn.current.get(part) ?? (
      <div key={index} class="block">
        {part}
      </div>
    );
    drawn.current.set(part, known);
    return known;
  };
  return (
    <div class="markdown">
      {parts.map(view)}
      {tail.length > 0 && (
        <div key="tail" class="block tail">
          {tail}
        </div>
      )}
    </div>
  );
}
