// Command output. While the command runs, the view follows the newest line.

import { useLayoutEffect, useRef } from "preact/hooks";
import { plainOutput } from "../escapes";
import { EndFollower } from "../dom/followEnd";
import { useScrollFocus } from "../dom/scrollFocus";

/**
 * Limit in characters for a running command. Only the end is shown, so a flood does not slow the
 * page.
 */
const LIVE_LIMIT = 20_000;
/** Distance to the end that counts as being there, in pixels. */
const NEAR_END = 24;

export function Output({ text, live }: { text: string; live: boolean }) {
  const shown = plainOutput(live ? text.slice(-LIVE_LIMIT) : text);
  const box = useScrollFocus<HTMLPreElement>("Output", shown);
  const end = useRef(new EndFollower(NEAR_END)).current;

  useLayoutEffect(() => {
    if (live && box.current) end.contentGrew(box.current);
  }, [shown, live]);

  if (shown.trim() === "") return live ? null : <p class="under">No output</p>;
  return (
    <pre class={live ? "output live" : "output"} ref={box} onScroll={(event) => end.readerMoved(event.currentTarget)}>
      {shown}
    </pre>
  );
}
