// Link in the header of a fork to the session that it was forked from.

import type { Session } from "../wire/frame";
import { ForkIcon } from "./ForkIcon";
import { forkAddress, useForkedSession } from "./forkedSession";

export function ForkParentLink({ parent: { id, seq } }: { parent: NonNullable<Session["parent"]> }) {
  const { title, isGone } = useForkedSession(id);
  const text = isGone ? "Fork of a deleted session" : title === undefined ? "Fork" : `Fork of ${title}`;
  const content = (
    <>
      <ForkIcon />
      <span dir="auto">{text}</span>
    </>
  );
  if (isGone) return <span class="fork-parent" role="img" aria-label={text} title={text}>{content}</span>;
  return (
    <a class="fork-parent" href={forkAddress(id, seq)} aria-label={text} title={text}>
      {content}
    </a>
  );
}
