// What a command printed. While it runs, the newest line stays in sight.

import { useLayoutEffect } from "preact/hooks";
import { plainOutput } from "../escapes";
import { useReach } from "../reach";

/** A running command's output is shown from its end: a flood must not slow the page down. */
const LIVE_LIMIT = 20_000;

export function Output({ text, live }: { text: string; live: boolean }) {
  const shown = plainOutput(live ? text.slice(-LIVE_LIMIT) : text);
  const box = useReach<HTMLPreElement>("Output", shown);

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
