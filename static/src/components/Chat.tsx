// The conversation. It follows what is new only while the reader is at its end.

import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { LiveSession } from "../state/live";
import type { Row } from "../state/rows";
import { Icon } from "./Icon";
import { RowView } from "./RowView";

/** As high as most rows are, in pixels: at first as many are mounted as a window holds of those, and more while there is room. */
const ROW_HEIGHT = 100;
/** So many more come at once, whenever the reader nears the top, and until there are `WINDOW`. */
const STEP = 24;
/** How many rows are mounted while nobody looks further back. */
const WINDOW = 96;
/** Between two steps of that, milliseconds: what else there is to draw comes first. */
const STEP_MS = 30;
/** How near to the top that is, in pixels. */
const NEAR_TOP = 400;
/** How near to the end still counts as being there, in pixels. */
const NEAR_END = 48;

export function Chat({ live }: { live: LiveSession }) {
  const { rows, sending, lastSeq } = live.state.value;
  const scroller = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  const from = useRef(0);
  const first = useRef<string | undefined>(undefined);
  const drawn = useRef(new WeakMap<Row, VNode>());
  const keepFromEnd = useRef<number | null>(null);
  const placed = useRef(0);
  const size = useRef("");
  const [mounted, setMounted] = useState(windowful);
  const [away, setAway] = useState(false);
  const [seen, setSeen] = useState(0);

  // While the reader is elsewhere the window only grows: taking rows away above would move the page. Rows that were put
  // before it move it along.
  if (following.current) from.current = Math.max(0, rows.length - mounted);
  else if (first.current && rows[from.current]?.key !== first.current) {
    from.current = Math.max(0, rows.findIndex((row) => row.key === first.current));
  }
  first.current = rows[from.current]?.key;

  const hasMore = from.current > 0 && mounted < WINDOW;
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    if (hasMore && element.scrollHeight <= element.clientHeight) setMounted(mounted + windowful());
    if (keepFromEnd.current !== null) element.scrollTop = element.scrollHeight - keepFromEnd.current;
    else if (following.current && !movedAway(element, placed.current)) element.scrollTop = element.scrollHeight;
    keepFromEnd.current = null;
    placed.current = element.scrollTop;
  });

  useEffect(() => {
    if (!hasMore) return;
    const timer = setTimeout(() => setMounted(mounted + STEP), STEP_MS);
    return () => clearTimeout(timer);
  }, [hasMore, mounted]);

  // Whatever takes room from the conversation, its end stays in sight.
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const resized = new ResizeObserver(() => wasResized(element));
    resized.observe(element);
    return () => resized.disconnect();
  }, []);

  /** Another width lays all out anew, and the browser scrolls for it: that was not the reader. */
  const wasResized = (element: HTMLElement): boolean => {
    const now = `${element.clientWidth}×${element.clientHeight}`;
    if (now === size.current) return false;
    size.current = now;
    if (following.current) element.scrollTop = element.scrollHeight;
    placed.current = element.scrollTop;
    return following.current;
  };

  const scrolled = () => {
    const element = scroller.current;
    if (!element || wasResized(element)) return;
    following.current = isAtEnd(element);
    if (away === following.current) {
      setAway(!following.current);
      setSeen(lastSeq);
    }
    if (!following.current && from.current > 0 && element.scrollTop < NEAR_TOP) showEarlier();
  };

  const showEarlier = () => {
    const element = scroller.current;
    if (!element) return;
    following.current = false;
    keepFromEnd.current = element.scrollHeight - element.scrollTop;
    from.current = Math.max(0, from.current - STEP);
    first.current = rows[from.current]?.key;
    setAway(true);
    setSeen(lastSeq);
  };

  const jump = () => {
    following.current = true;
    setAway(false);
    scroller.current?.scrollTo({ top: scroller.current.scrollHeight });
  };

  const view = (row: Row) => {
    const known = drawn.current.get(row) ?? <RowView key={row.key} row={row} />;
    drawn.current.set(row, known);
    return known;
  };

  const unsent = sending.filter((sent) => sent.wish.action === "message" && sent.refusal === undefined);
  return (
    <div class="chat-frame">
      <div class={away ? "chat" : "chat following"} ref={scroller} role="log" aria-live="off" aria-label="Conversation" tabIndex={0} onScroll={scrolled}>
        <div class="column">
          {from.current > 0 && (
            <button type="button" class="button earlier" hidden={hasMore} onClick={showEarlier}>
              Show {Math.min(STEP, from.current)} earlier of {from.current}
            </button>
          )}
          {from.current === 0 && live.past && <Past trouble={live.past.trouble} hasRows={rows.length > 0} />}
          {rows.length === 0 && <Waiting whole={live.isWhole} />}
          {rows.slice(from.current).map(view)}
          {unsent.map((sent) => (
            <div key={sent.id} class="row user unsent">
              <div class="bubble" dir="auto">{"args" in sent.wish && "content" in sent.wish.args ? sent.wish.args.content : ""}</div>
              <span class="under">sending…</span>
            </div>
          ))}
        </div>
      </div>
      {away && (
        <button type="button" class={seen === lastSeq ? "pill" : "pill new"} onClick={jump}>
          <Icon name="down" /> {seen === lastSeq ? "Latest" : "New events"}
        </button>
      )}
    </div>
  );
}

function windowful(): number {
  return Math.ceil(innerHeight / ROW_HEIGHT);
}

function isAtEnd(element: HTMLElement): boolean {
  return element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END;
}

/** Whether the reader has scrolled up since, in a frame whose scroll event has not come yet. */
function movedAway(element: HTMLElement, placedAt: number): boolean {
  return element.scrollTop < placedAt - 1 && !isAtEnd(element);
}

/** Stands where the button will stand that shows what came before: without it the conversation would seem to begin here. */
function Past({ trouble, hasRows }: { trouble: string; hasRows: boolean }) {
  // Where there is no row at all, what stands in place of them says that they are on their way.
  if (!trouble && !hasRows) return null;
  return (
    <p class="muted centred earlier" role="status">
      {trouble ? `What came before could not be loaded yet (${trouble}). It is tried again.` : "Loading what came before…"}
    </p>
  );
}

function Waiting({ whole }: { whole: boolean }) {
  if (whole) return <p class="muted centred">Nothing has happened here yet. Write what should be done.</p>;
  return (
    <div role="status" aria-label="Loading">
      <div class="skeleton tall" />
      <div class="skeleton" />
      <div class="skeleton" />
    </div>
  );
}
