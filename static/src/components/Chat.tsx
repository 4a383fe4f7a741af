// Conversation. Follows new rows only while the reader is at the end.

import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { EndFollower } from "../dom/followEnd";
import type { LiveSession } from "../state/liveSession";
import { ReadGrouping, isOrHolds, showsRow, type ChatItem } from "../state/readGroups";
import { BacktickText } from "./BacktickText";
import { Icon } from "./Icon";
import { RetryLine } from "./RetryLine";
import { RowView } from "./RowView";
import { revealedRow } from "../state/revealedRow";
import { Revealed, showRevealed } from "./Revealed";

/**
 * Typical row height in pixels. The first rows fill one window; more follow while there is room.
 */
const ROW_HEIGHT = 100;
/** Rows added per step, near the top and up to `WINDOW`. */
const STEP = 24;
/** Number of mounted rows at the end of the conversation. */
const WINDOW = 96;
/** Delay between two steps in milliseconds. Other drawing comes first. */
const STEP_MS = 30;
/** Distance to the top that loads more rows, in pixels. */
const NEAR_TOP = 400;
/** Rows drawn above a row that an address points at. */
const ABOVE_REVEALED = 12;
/** Distance to the end that counts as being there, in pixels. */
const NEAR_END = 48;

export function Chat({ live }: { live: LiveSession }) {
  const { rows: ungrouped, pending, lastSeq } = live.state.value;
  const rows = useRef(new ReadGrouping()).current.group(ungrouped);
  const scroller = useRef<HTMLDivElement>(null);
  const end = useRef(new EndFollower(NEAR_END)).current;
  const from = useRef(0);
  const first = useRef<string | undefined>(undefined);
  const drawn = useRef(new WeakMap<ChatItem, VNode>());
  const keepFromEnd = useRef<number | null>(null);
  const revealedVisit = useRef<object | null>(null);
  const [mounted, setMounted] = useState(windowful);
  /** Newest event when the reader left the end. `null` at the end. */
  const [leftAtSeq, setLeftAtSeq] = useState<number | null>(null);
  const [, redraw] = useState({});

  const revealed = revealedRow.value?.session === live.id ? revealedRow.value : null;
  const isRevealing = revealed !== null && revealed.visit !== revealedVisit.current && scroller.current !== null;
  if (isRevealing) end.leave(scroller.current!);

  // Away from the end the window only grows, because removing rows above would move the page. Rows
  // merged in front shift it.
  if (end.isFollowing) from.current = Math.max(0, rows.length - mounted);
  else if (first.current && rows[from.current]?.key !== first.current) {
    from.current = Math.max(0, rows.findIndex((row) => isOrHolds(row, first.current)));
  }
  if (isRevealing) from.current = Math.min(from.current, Math.max(0, rows.findIndex((row) => showsRow(row, revealed.key)) - ABOVE_REVEALED));
  first.current = rows[from.current]?.key;

  const hasMore = from.current > 0 && mounted < WINDOW;
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    if (hasMore && element.scrollHeight <= element.clientHeight) setMounted(mounted + windowful());
    if (keepFromEnd.current === null) end.contentGrew(element);
    else {
      element.scrollTop = element.scrollHeight - keepFromEnd.current;
      end.laidOut(element);
    }
    keepFromEnd.current = null;
    if (isRevealing) {
      revealedVisit.current = revealed.visit;
      showRevealed(element);
      end.laidOut(element);
    }
    updatePill();
  });

  useEffect(() => {
    if (!hasMore) return;
    const timer = setTimeout(() => setMounted(mounted + STEP), STEP_MS);
    return () => clearTimeout(timer);
  }, [hasMore, mounted]);

  // A changed height keeps the end visible.
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const resized = new ResizeObserver(() => end.laidOut(element));
    resized.observe(element);
    // Bodies of tool calls appear when their code is loaded.
    if (element.firstElementChild) resized.observe(element.firstElementChild);
    return () => resized.disconnect();
  }, []);

  // Unfolding grows the content without a scroll event, so the follow state is checked first.
  // Content that unfolds by itself is drawn with the rest and followed.
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const unfolded = new MutationObserver(() => {
      end.readerMoved(element);
      updatePill();
    });
    unfolded.observe(element, { subtree: true, attributeFilter: ["aria-expanded", "open"] });
    return () => unfolded.disconnect();
  }, [live]);

  /** Updates the pill beside the conversation: hidden at the end, marked after new events. */
  const updatePill = () => setLeftAtSeq((before) => (end.isFollowing ? null : before ?? live.state.peek().lastSeq));

  const scrolled = () => {
    const element = scroller.current;
    if (!element) return;
    end.readerMoved(element);
    updatePill();
    if (!end.isFollowing && from.current > 0 && element.scrollTop < NEAR_TOP) showEarlier();
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
    if (scroller.current) end.returnToEnd(scroller.current);
    updatePill();
  };

  const view = (row: ChatItem) => {
    const known = drawn.current.get(row) ?? <RowView key={row.key} row={row} session={live.isRecorded ? undefined : live.id} />;
    drawn.current.set(row, known);
    return revealed && showsRow(row, revealed.key) ? <Revealed key={row.key}>{known}</Revealed> : known;
  };

  const unsent = pending.filter((sent) => sent.request.action === "message" && sent.rejection === undefined);
  return (
    <div class="chat-frame">
      <div class="chat" ref={scroller} role="log" aria-live="off" aria-label="Conversation" tabIndex={0} onScroll={scrolled}>
        <div class="column">
          {from.current > 0 && (
            <button type="button" class="button earlier" hidden={hasMore} onClick={showEarlier}>
              Show {Math.min(STEP, from.current)} earlier of {from.current}
            </button>
          )}
          {from.current === 0 && live.earlierEvents && <EarlierStatus problem={live.earlierEvents.problem} hasRows={rows.length > 0} />}
          {rows.length === 0 && <EmptyChat isComplete={live.isComplete} />}
          {rows.slice(from.current).map(view)}
          <RetryLine live={live} />
          {unsent.map((sent) => (
            <div key={sent.id} class="row user unsent">
              <div class="bubble" dir="auto">{"args" in sent.request && "content" in sent.request.args ? sent.request.args.content : ""}</div>
              <span class="under">Sending…</span>
            </div>
          ))}
        </div>
      </div>
      {leftAtSeq !== null && (
        <button type="button" class={leftAtSeq === lastSeq ? "pill" : "pill new"} onClick={jump}>
          <Icon name="down" /> {leftAtSeq === lastSeq ? "Latest" : "New events"}
        </button>
      )}
    </div>
  );
}

function windowful(): number {
  return Math.ceil(innerHeight / ROW_HEIGHT);
}

/**
 * Loading note in place of the button for earlier rows. Without it the conversation would seem to
 * start here.
 */
function EarlierStatus({ problem, hasRows }: { problem: string; hasRows: boolean }) {
  // Without rows, the skeleton already shows that they are loading.
  if (!problem && !hasRows) return null;
  return (
    <p class="muted centred earlier" role="status">
      {problem ? <BacktickText text={`Couldn't load earlier messages (${problem}). Retrying…`} /> : "Loading earlier messages…"}
    </p>
  );
}

function EmptyChat({ isComplete }: { isComplete: boolean }) {
  if (isComplete) return <p class="muted centred">No messages yet. Describe what to do.</p>;
  return (
    <div role="status" aria-label="Loading">
      <div class="skeleton tall" />
      <div class="skeleton" />
      <div class="skeleton" />
    </div>
  );
}
