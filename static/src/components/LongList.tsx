// List of any length with rows of one height. Mounts only visible rows and follows its end. Rows
// are no tab stops, because following removes them.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { EndFollower } from "../dom/followEnd";

interface LongListProps {
  label: string;
  count: number;
  /** Row height in pixels. */
  rowHeight: number;
  row: (index: number) => ComponentChildren;
}

/** Rows mounted beyond the visible ones, on each side. */
const MARGIN = 10;

export function LongList({ label, count, rowHeight, row }: LongListProps) {
  const box = useRef<HTMLDivElement>(null);
  const end = useRef(new EndFollower(rowHeight)).current;
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
    end.contentGrew(element);
  }, [count]);

  // A panel beside the list shrinks it. The row that opened the panel stays visible.
  useLayoutEffect(() => {
    if (box.current) end.laidOut(box.current);
    rowWithFocus()?.scrollIntoView({ block: "nearest" });
  }, [height]);

  const scrolled = () => {
    const element = box.current;
    if (!element) return;
    end.readerMoved(element);
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
