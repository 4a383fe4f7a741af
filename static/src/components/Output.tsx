// What a command printed. While it runs, the newest line stays in sight of whoever looks at it.

import { useLayoutEffect, useRef } from "preact/hooks";
import { plainOutput } from "../escapes";
import { Following } from "../follow";
import { useReach } from "../reach";

/** A running command's output is shown from its end: a flood must not slow the page down. */
const LIVE_LIMIT = 20_000;
/** How near to the end still counts as being there, in pixels. */
const NEAR_END = 24;

export function Output({ text, live }: { text: string; live: boolean }) {
  const shown = plainOutput(live ? text.slice(-LIVE_LIMIT) : text);
  const box = useReach<HTMLPreElement>("Output", shown);
  const end = useRef(new Following(NEAR_END)).current;

  useLayoutEffect(() => {
    if (live && box.current) end.follow(box.current);
  }, [shown, live]);

  if (shown.trim() === "") return live ? null : <p class="under">no output</p>;
  return (
    <pre class={live ? "output live" : "output"} ref={box} onScroll={(event) => end.look(event.currentTarget)}>
      {shown}
    </pre>
  );
}
