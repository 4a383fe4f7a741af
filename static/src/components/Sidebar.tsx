// Sidebar with the session list.

import { useEffect, useRef } from "preact/hooks";
import mark from "../../favicon.svg";
import { listed, listError, MAX_LISTED, MAX_QUERY, refreshSessions, search, sessions, showArchived, showMore, toggleArchived, total } from "../state/sessionList";
import { MOD, overlay } from "../state/keys";
import { loadOptions } from "../state/serverOptions";
import { toggleSidebar } from "../state/sidebar";
import { route } from "../route";
import { Icon } from "./Icon";
import { lazy } from "./lazy";
import { ErrorNotice } from "./ErrorNotice";

const ConversationResults = lazy((later) => later.ConversationResults);
const SessionGroups = lazy((later) => later.SessionGroups, <Skeletons />);

const SEARCH_AFTER_MS = 200;

export function Sidebar() {
  return (
    <aside class="sidebar" aria-label="Sessions">
      <div class="sidebar-top">
        <a class="brand" href="/sessions">
          <span class="mark" aria-hidden="true" dangerouslySetInnerHTML={{ __html: mark }} />
          Greenroom
        </a>
        <button
          type="button"
          class="icon-button put-away"
          aria-label="Hide the session list"
          title={`Hide the session list (${MOD} B)`}
          onClick={toggleSidebar}
        >
          <Icon name="sidebar" />
        </button>
        <a class="button" href="/sessions" title="New session">
          <Icon name="plus" /> New
        </a>
      </div>
      <Search />
      {showArchived.value && (
        <p class="list-kind">
          Archived sessions
          <button type="button" class="icon-button" aria-label="Show active sessions" title="Show active sessions" onClick={toggleArchived}>
            <Icon name="cross" />
          </button>
        </p>
      )}
      <nav class="session-list" aria-label="All sessions">
        <List />
      </nav>
      <div class="sidebar-foot">
        <button type="button" class="sidebar-settings" onClick={() => (overlay.value = "settings")}>
          <Icon name="settings" /> Settings
        </button>
        <button
          type="button"
          class="icon-button"
          aria-label="Archived sessions"
          title="Archived sessions"
          aria-pressed={showArchived.value}
          onClick={toggleArchived}
        >
          <Icon name="archive" />
        </button>
      </div>
    </aside>
  );
}

function Search() {
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <div class="search">
      <Icon name="search" />
      <input
        type="search"
        dir="auto"
        placeholder="Search sessions"
        aria-label="Search the sessions"
        maxLength={MAX_QUERY}
        value={search.value}
        onInput={(event) => {
          search.value = event.currentTarget.value;
          clearTimeout(timer.current);
          timer.current = window.setTimeout(() => void refreshSessions(), SEARCH_AFTER_MS);
        }}
      />
      <button
        type="button"
        class="key-hint"
        aria-label={`${MOD} K: search sessions and actions`}
        title="Search sessions and actions"
        onClick={() => (overlay.value = "palette")}
      >
        {MOD} K
      </button>
    </div>
  );
}

function List() {
  useEffect(() => void loadOptions(), []);
  const query = search.value.trim();
  return (
    <>
      <Sessions />
      {query && <ConversationResults text={query} />}
    </>
  );
}

function Sessions() {
  const items = listed.value;
  const shown = route.value;
  const current = shown.page === "session" ? shown.id : null;
  if (listError.value && !items) return <ErrorNotice text={listError.value} onRetry={() => void refreshSessions()} />;
  if (!items) return <Skeletons />;
  if (items.length === 0) return <p class="muted list-empty">{emptyText()}</p>;
  return (
    <>
      {listError.value && <ErrorNotice text={listError.value} onRetry={() => void refreshSessions()} />}
      <SessionGroups sessions={items} current={current} />
      {total.value > (sessions.value?.length ?? 0) && <More shown={sessions.value?.length ?? 0} />}
    </>
  );
}

function More({ shown }: { shown: number }) {
  if (shown >= MAX_LISTED) return <p class="muted list-empty">Search to find older sessions.</p>;
  return (
    <button type="button" class="button list-more" onClick={showMore}>
      Show more of {total.value.toLocaleString("en")}
    </button>
  );
}

function emptyText(): string {
  if (search.value.trim()) return "No title matches.";
  if (showArchived.value) return "No archived sessions.";
  return "No sessions yet. Describe a task to start.";
}

function Skeletons() {
  return (
    <div aria-label="Loading" role="status">
      {[0, 1, 2, 3].map((line) => (
        <div key={line} class="skeleton" />
      ))}
    </div>
  );
}
