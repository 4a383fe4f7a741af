// What a command printed. While it runs, the newest line stays in sight.

import { useLayoutEffect, useRef } from "preact/hooks";
import { plainOutput } from "../escapes";

/** A running command's output is shown from its end: a flood must not slow the page down. */
const LIVE_LIMIT = 20_000;

export function Output({ text, live }: { text: string; live: boolean }) {
  const box = useRef<HTMLPreElement>(null);
  const shown = plainOutput(live ? text.slice(-LIVE_LIMIT) : text);

  useLayoutEffect(() => {
    if (live && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown, live]);

  if (shown.trim() === "") return live ? null : <p class="under">no output</p>;
  return (
    <pre class={live ? "output live" : "output"} ref={box}>
      {shown}
    </pre>
  );
}
