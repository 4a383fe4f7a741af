// Results of a search through what was said, below the titles in the sidebar.

import { useEffect } from "preact/hooks";
import { now, serverNow } from "../clock";
import { plural, relativeTime } from "../format";
import { continueSearch, conversationSearch, searchTyped, type ConversationSearch } from "../state/conversationSearch";
import type { FoundPassage } from "../wire/lazyRest";
import { ErrorNotice } from "./ErrorNotice";

/** `text`: the typed query. */
export function ConversationResults({ text }: { text: string }) {
  useEffect(() => searchTyped(text), [text]);
  const search = conversationSearch.value;
  if (!search) return null;
  return (
    <section class="list-group found-passages" aria-labelledby="found-passages">
      <h2 id="found-passages">In conversations</h2>
      <ul>
        {search.items.map((found) => (
          <Result key={`${found.session} ${found.seq}`} found={found} />
        ))}
      </ul>
      <p class="muted list-empty" role="status">
        {statusText(search)}
      </p>
      {search.phase === "failed" && <ErrorNotice text={search.problem} onRetry={() => void continueSearch()} />}
      {search.phase === "paused" && search.cursor !== null && (
        <button type="button" class="button list-more" onClick={() => void continueSearch()}>
          More results
        </button>
      )}
    </section>
  );
}

function statusText({ phase, items, query, cursor, unreadable }: ConversationSearch): string {
  if (phase === "searching") return "Searching…";
  if (phase === "failed") return "";
  const left = unreadable > 0 ? ` ${plural(unreadable, "session")} could not be read.` : "";
  if (items.length === 0) return `Nothing said matches “${query}”.${left}`;
  return `${plural(items.length, "result")}${cursor === null ? "" : " so far"}.${left}`;
}

function Result({ found }: { found: FoundPassage }) {
  const title = found.title || "Untitled";
  return (
    <li class="passage">
      <a href={`/sessions/${found.session}?at=${found.seq}`}>
        <span class="passage-title" dir="auto">{title}</span>
        <time dateTime={found.at}>{relativeTime(found.at, serverNow() ?? now.value)}</time>
        <span class="passage-text" dir="auto">
          {isCommand(found) && <span class="passage-kind">$ </span>}
          <Snippet found={found} />
        </span>
        {found.archived && <span class="passage-archived">archived</span>}
      </a>
    </li>
  );
}

const isCommand = ({ kind }: FoundPassage) => kind === "run" || kind === "tool";

/** Snippet with its matches marked. */
function Snippet({ found: { snippet, matches } }: { found: FoundPassage }) {
  let end = 0;
  const parts = matches.map(([from, to]) => {
    const before = snippet.slice(end, from);
    end = to;
    return (
      <>
        {before}
        <mark>{snippet.slice(from, to)}</mark>
      </>
    );
  });
  return (
    <>
      {parts}
      {snippet.slice(end)}
    </>
  );
}
