// Call of an approval request: a diff of the file, or the text to approve.

import { escapeInvisible } from "../escapes";
import type { RequestedCall } from "./requestedCall";
import { RequestedText } from "./RequestedText";

export function CallPreview({ call, diff }: { call: RequestedCall; diff: string | undefined }) {
  const { path = "", text } = call;
  return (
    <>
      {path !== "" && <p class="confirm-path"><code dir="ltr">{escapeInvisible(path)}</code></p>}
      {/* Only a call that changes a file has a diff. Another call shows what it runs. */}
      <RequestedText text={path !== "" && diff ? diff : text} isDiff={path !== "" && Boolean(diff)} />
    </>
  );
}
