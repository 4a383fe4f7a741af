// Call of an approval request: a diff of the file, or the text to approve.

import { useMemo } from "preact/hooks";
import { Diff } from "../components/Diff";
import { escapeInvisible } from "../escapes";
import type { RequestedCall } from "./requestedCall";
import { RequestedText } from "./RequestedText";

export function CallPreview({ call, diff }: { call: RequestedCall; diff: string | undefined }) {
  const { path = "", text } = call;
  // Only the text of a diff may hold line breaks; its other controls become visible.
  const shown = useMemo(() => diff && diff.split("\n").map(escapeInvisible).join("\n"), [diff]);
  return (
    <>
      {path !== "" && <p class="confirm-path"><code dir="ltr">{escapeInvisible(path)}</code></p>}
      {shown ? <div class="confirm-diff"><Diff path={path} text={shown} /></div> : <RequestedText text={text} />}
    </>
  );
}
