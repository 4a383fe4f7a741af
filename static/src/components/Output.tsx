// Command output in its colours. While the command runs, the view follows the newest line.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { plainOutput } from "../escapes";
import { EndFollower } from "../dom/followEnd";
import { useScrollFocus } from "../dom/scrollFocus";
import { lazyBundle, loadLazy } from "../loadLazy";
import { newestLines, textInWholeLines } from "../state/codeText";
import { CopyButton } from "./CopyButton";
import { FOLDED_LINES } from "./Fence";
import { FoldButton } from "./FoldButton";

/**
 * Limit in characters for a running command. Only the end is shown, so a flood does not slow the
 * page.
 */
const LIVE_LIMIT = 20_000;
/** Distance to the end that counts as being there, in pixels. */
const NEAR_END = 24;

interface OutputProps {
  text: string;
  live: boolean;
  /** Size of a truncated output in bytes. */
  whole?: number | undefined;
}

export function Output({ text, live, whole }: OutputProps) {
  const [unfolded, setUnfolded] = useState(false);
  const all = (live ? newestLines(text, LIVE_LIMIT) : textInWholeLines(text, whole)).trimEnd();
  const lines = live ? 0 : all.split("\n").length;
  const shown = lines > FOLDED_LINES && !unfolded ? all.split("\n", FOLDED_LINES).join("\n") : all;
  const plain = plainOutput(shown);
  const box = useScrollFocus<HTMLDivElement>("Output", shown);
  const end = useRef(new EndFollower(NEAR_END)).current;

  useLayoutEffect(() => {
    if (live && box.current) end.contentGrew(box.current);
  }, [shown, live]);

  if (plain.trim() === "") return live ? null : <p class="under">No output</p>;
  return (
    <div class="code-block">
      <div class={live ? "output live" : "output"} ref={box} onScroll={(event) => end.readerMoved(event.currentTarget)}>
        <OutputText text={shown} plain={plain} />
      </div>
      {!live && <CopyButton text={() => plainOutput(all)} />}
      {lines > FOLDED_LINES && <FoldButton lines={lines} unfolded={unfolded} onChange={setUnfolded} />}
    </div>
  );
}

/** Text in its colours, or plain if it has none or their code is not loaded. */
function OutputText({ text, plain }: { text: string; plain: string }) {
  const isPlain = text === plain;
  useEffect(() => void (isPlain || loadLazy()), [isPlain]);
  const AnsiText = isPlain ? undefined : lazyBundle.value?.AnsiText;
  return AnsiText ? <AnsiText text={text} /> : <pre>{plain}</pre>;
}
