// A list of any length, of rows of one height: only those in sight are mounted. It follows its end while that is in sight, and
// nobody goes through its rows by keyboard: what follows takes them away.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Following } from "../follow";

interface Props {
  label: string;
  count: number;
  /** In pixels. */
  rowHeight: number;
  row: (index: number) => ComponentChildren;
}

/** Rows that are mounted beyond what is in sight, on each side. */
const MARGIN = 10;

export function LongList({ label, count, rowHeight, row }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const end = useRef(new Following(rowHeight)).current;
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measured = new ResizeObserver(() => setHeight(element.clientHeight));
    measured.observe(element);
    return () => measured.disconnect();
  }, []);

  const rowWithFocus = () => box.current?.querySelector(":focus-visible");

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    if (rowWithFocus()) end.leave(element);
    end.follow(element);
  }, [count]);

  // What opens beside the list takes its room, and not the row that it was opened with.
  useLayoutEffect(() => {
    if (box.current) end.settle(box.current);
    rowWithFocus()?.scrollIntoView({ block: "nearest" });
  }, [height]);

  const scrolled = () => {
    const element = box.current;
    if (!element) return;
    end.look(element);
    setTop(element.scrollTop);
  };

  const first = Math.max(0, Math.floor(top / rowHeight) - MARGIN);
  const last = Math.min(count, Math.ceil((top + height) / rowHeight) + MARGIN);
  const inSight = Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
  return (
    <div class="long-list" ref={box} onScroll={scrolled} tabIndex={0} role="region" aria-label={label}>
      <div class="long-list-all" style={{ height: `${count * rowHeight}px` }}>
        <div class="long-list-part" style={{ transform: `translateY(${first * rowHeight}px)` }}>
          {inSight.map(row)}
        </div>
      </div>
    </div>
  );
}
