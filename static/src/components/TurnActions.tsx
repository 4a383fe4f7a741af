// What to do with a turn that is over: copy its text, send its message again, fork the session,
// look at its changes.

import { useState } from "preact/hooks";
import { TurnChanges } from "../changes/TurnChanges";
import { copyText } from "../dom/copyText";
import { ForkTurn } from "../fork/ForkTurn";
import { currentLive } from "../state/currentSession";
import { retriableRow, retriableTurn } from "../state/retry";
import type { TurnRow } from "../state/rows";

/** Time for which a copy is confirmed, in milliseconds. */
const COPIED_MS = 1500;

export function TurnActions({ row }: { row: TurnRow }) {
  return (
    <>
      {row.answer && <CopyAnswer text={row.answer} />}
      {retriableRow.value === row.key && <RetryButton kind="link" />}
      <ForkTurn end={row.end} />
      <TurnChanges row={row} />
    </>
  );
}

function CopyAnswer({ text }: { text: string }) {
  const [isCopied, setIsCopied] = useState(false);
  const confirm = () => {
    setIsCopied(true);
    setTimeout(() => setIsCopied(false), COPIED_MS);
  };
  // A browser may deny the clipboard. Then nothing is confirmed.
  const copy = () => copyText(text).then(confirm, () => {});
  return (
    <button type="button" class="link" title="Copy the final text" onClick={() => void copy()}>
      {isCopied ? "Copied" : "Copy"}
    </button>
  );
}

/** Sends the message of the last turn anew. */
export function RetryButton({ kind }: { kind: "link" | "button" }) {
  const retry = () => {
    const live = currentLive.peek();
    const turn = live && retriableTurn(live.state.peek());
    if (turn) live.retry(turn.request);
  };
  return (
    <button type="button" class={kind} title="Send the same message again" onClick={retry}>
      Retry
    </button>
  );
}
