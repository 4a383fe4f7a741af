// Place in the conversation at which a fork leaves the session that it was forked from.

import type { ForkOrigin } from "../wire/generated/types";
import { ForkIcon } from "./ForkIcon";
import { forkAddress, useForkedSession } from "./forkedSession";

export function ForkNote({ origin: { from, at, checkpoint } }: { origin: ForkOrigin }) {
  const { title, isGone } = useForkedSession(from);
  return (
    <span class="fork-note">
      <ForkIcon />
      <span>
        Forked from {isGone ? "a deleted session" : <a href={forkAddress(from, at)}>{title ?? "another session"}</a>}.{" "}
        {checkpoint === undefined ? "Files are not from this point." : "Files are as they were here."}
      </span>
    </span>
  );
}
