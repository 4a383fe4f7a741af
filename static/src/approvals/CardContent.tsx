// Content of an approval request. In a low window it scrolls, and says so.

import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { useIsCut } from "./isCut";

export function CardContent({ children }: { children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const isCut = useIsCut(box);
  return (
    <>
      <div class="confirm-content" ref={box}>
        <div class="confirm-parts">{children}</div>
      </div>
      {isCut && <p class="cut">Scroll to read all</p>}
    </>
  );
}
