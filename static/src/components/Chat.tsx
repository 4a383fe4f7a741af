// The conversation. It follows what is new only while the reader is at its end.

import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Following } from "../follow";
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
  const end = useRef(new Following(NEAR_END)).current;
  const from = useRef(0);
  const first = useRef<string | undefined>(undefined);
  const drawn = useRef(new WeakMap<Row, VNode>());
  const keepFromEnd = useRef<number | null>(null);
  const [mounted, setMounted] = useState(windowful);
  /** The newest event when the reader left the end; `null` while they are there. */
  const [left, setLeft] = useState<number | null>(null);
  const [, redraw] = useState({});

  // While the reader is elsewhere the window only grows: taking rows away above would move the page. Rows that were put
  // before it move it along.
  if (end.isOn) from.current = Math.max(0, rows.length - mounted);
  else if (first.current && rows[from.current]?.key !== first.current) {
    from.current = Math.max(0, rows.findIndex((row) => row.key === first.current));
  }
  first.current = rows[from.current]?.key;

  const hasMore = from.current > 0 && mounted < WINDOW;
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    if (hasMore && element.scrollHeight <= element.clientHeight) setMounted(mounted + windowful());
    if (keepFromEnd.current === null) end.follow(element);
    else {
      element.scrollTop = element.scrollHeight - keepFromEnd.current;
      end.settle(element);
    }
    keepFromEnd.current = null;
    tell();
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
    const resized = new ResizeObserver(() => end.settle(element));
    resized.observe(element);
    return () => resized.disconnect();
  }, []);

  // What the reader unfolds grows away from the end without a scroll event. Where that leaves them is asked before anything else is
  // drawn; what unfolds by itself was drawn with all else, and its end is in sight then.
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const unfolded = new MutationObserver(() => {
      end.look(element);
      tell();
    });
    unfolded.observe(element, { subtree: true, attributeFilter: ["aria-expanded", "open"] });
    return () => unfolded.disconnect();
  }, [live]);

  /** The button beside the conversation says whether the reader follows it, and whether more has come since they do not. */
  const tell = () => setLeft((before) => (end.isOn ? null : before ?? live.state.peek().lastSeq));

  const scrolled = () => {
    const element = scroller.current;
    if (!element) return;
    end.look(element);
    tell();
    if (!end.isOn && from.current > 0 && element.scrollTop < NEAR_TOP) showEarlier();
  };

  const showEarlier = () => {
    const element = scroller.current;
    if (!element) return;
    end.leave(element);
    keepFromEnd.current = element.scrollHeight - element.scrollTop;
    from.current = Math.max(0, from.current - STEP);
    first.current = rows[from.current]?.key;
    redraw({});
  };

  const jump = () => {
    if (scroller.current) end.comeBack(scroller.current);
    tell();
  };

  const view = (row: Row) => {
    const known = drawn.current.get(row) ?? <RowView key={row.key} row={row} />;
    drawn.current.set(row, known);
    return known;
  };

  const unsent = sending.filter((sent) => sent.wish.action === "message" && sent.refusal === undefined);
  return (
    <div class="chat-frame">
      <div class="chat" ref={scroller} role="log" aria-live="off" aria-label="Conversation" tabIndex={0} onScroll={scrolled}>
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
      {left !== null && (
        <button type="button" class={left === lastSeq ? "pill" : "pill new"} onClick={jump}>
          <Icon name="down" /> {left === lastSeq ? "Latest" : "New events"}
        </button>
      )}
    </div>
  );
}

function windowful(): number {
  return Math.ceil(innerHeight / ROW_HEIGHT);
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
