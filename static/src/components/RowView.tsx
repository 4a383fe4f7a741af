// Row of the conversation, by kind.

import { useState } from "preact/hooks";
import { elapsed } from "../format";
import { escapeInvisible } from "../escapes";
import { useScrollFocus } from "../dom/scrollFocus";
import type { ChatItem } from "../state/readGroups";
import type { NoticeRow, PlanRow, SummaryRow, TextRow, UserRow } from "../state/rows";
import { lazy } from "./lazy";
import { BacktickText } from "./BacktickText";
import { AttachedFiles } from "./AttachedFiles";
import { Icon } from "./Icon";
import { Markdown } from "./Markdown";
import { Reads } from "./Reads";
import { ToolCall } from "./ToolCall";
import { TruncationNote } from "./TruncationNote";
import { TurnCard } from "./TurnCard";

const ForkNote = lazy((later) => later.ForkNote);
const MessageActions = lazy((later) => later.MessageActions);

/** `session`: session of attached files. A recording has none. */
export function RowView({ row, session }: { row: ChatItem; session?: string | undefined }) {
  switch (row.kind) {
    case "user":
      return <UserMessage row={row} session={session} />;
    case "text":
      return <AgentText row={row} />;
    case "thinking":
      return <Thinking row={row} />;
    case "tool":
      return <ToolCall row={row} />;
    case "reads":
      return <Reads group={row} />;
    case "plan":
      return <Plan row={row} />;
    case "summary":
      return <Summary row={row} />;
    case "turn":
      return <TurnCard row={row} />;
    case "notice":
      return <Notice row={row} />;
  }
}

function UserMessage({ row, session }: { row: UserRow; session: string | undefined }) {
  // The queue shows queued messages. Withdrawn ones are hidden.
  if (row.phase === "queued" || row.phase === "withdrawn") return null;
  return (
    <article class="row user" aria-label="You">
      <div class="bubble" dir="auto" onMouseEnter={(event) => (event.currentTarget.title = new Date(row.at).toLocaleString())}>
        {row.text}
        <MessageActions row={row} />
      </div>
      {row.attachments.length > 0 && <AttachedFiles paths={row.attachments} session={session} />}
      {row.mode === "steer" && <span class="under">steered</span>}
    </article>
  );
}

function AgentText({ row }: { row: TextRow }) {
  return (
    <article class={row.open ? "row agent open" : "row agent"} aria-label="Agent" aria-busy={row.open}>
      <Markdown text={row.text} open={row.open} />
      <TruncationNote truncated={row.truncated} />
      {row.partial && <span class="under">cut short</span>}
    </article>
  );
}

function Thinking({ row }: { row: TextRow }) {
  const [unfolded, setUnfolded] = useState(false);
  const shown = row.open || unfolded;
  if (row.text.trim() === "") return null;
  return (
    <div class="row thinking">
      <button type="button" class="fold" aria-expanded={shown} onClick={() => setUnfolded(!unfolded)} disabled={row.open}>
        <Icon name="chevron" />
        {row.open ? "Thinking…" : thoughtText(row)}
      </button>
      {shown && <div class="thought" dir="auto">{row.text}</div>}
      {shown && <TruncationNote truncated={row.truncated} />}
    </div>
  );
}

function thoughtText({ durationMs = 0, partial }: TextRow): string {
  const lasted = elapsed(durationMs);
  return `Thought${lasted && ` for ${lasted}`}${partial ? ", cut short" : ""}`;
}

/** The agent continues from the summary. The conversation above stays readable. */
function Summary({ row }: { row: SummaryRow }) {
  const [unfolded, setUnfolded] = useState(false);
  return (
    <div class="row summary">
      <button type="button" class="fold" aria-expanded={unfolded} onClick={() => setUnfolded(!unfolded)}>
        <Icon name="chevron" /> Conversation summarised
      </button>
      {unfolded && (
        <div class="summary-text">
          <Markdown text={row.markdown} open={false} />
          <TruncationNote truncated={row.truncated} />
        </div>
      )}
    </div>
  );
}

function Plan({ row }: { row: PlanRow }) {
  const done = row.items.filter((item) => item.done).length;
  if (row.superseded) {
    return (
      <p class="row under">
        <Icon name="plan" /> Plan{row.items.length > 0 && `, ${done} of ${row.items.length} done`}
      </p>
    );
  }
  return (
    <section class="row plan" aria-label="Plan">
      <h2>
        <Icon name="plan" /> Plan
        {row.items.length > 0 && (
          <span class="muted">
            {done} of {row.items.length}
          </span>
        )}
      </h2>
      <Markdown text={row.markdown} open={false} />
      <TruncationNote truncated={row.truncated} />
    </section>
  );
}

function Notice({ row }: { row: NoticeRow }) {
  return (
    <div class={`row notice ${row.tone}`}>
      {/* The report itself states that the task is done. */}
      <span class={row.tone === "good" && row.detail ? "visually-hidden" : undefined} dir="auto">
        {row.fork ? <ForkNote origin={row.fork} /> : <NoticeText {...row} />}
      </span>
      {row.detail && row.tone === "good" && <Markdown text={row.detail} open={false} />}
      {row.detail && row.tone !== "good" && <Detail text={row.detail} />}
    </div>
  );
}

/** Notice text with its command set as code. */
function NoticeText({ text, code }: NoticeRow) {
  if (!code) return <BacktickText text={text} />;
  const [before, after] = text.split(`\`${code}\``);
  return (
    <>
      {before}
      <code dir="ltr">{code}</code>
      {after}
    </>
  );
}

function Detail({ text }: { text: string }) {
  return (
    <pre class="detail" ref={useScrollFocus("Details", text)}>
      <BacktickText text={escapeInvisible(text)} />
    </pre>
  );
}
