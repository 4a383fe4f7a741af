// The list of sessions, and the way to everything else.

import { useEffect, useRef } from "preact/hooks";
import mark from "../../favicon.svg";
import { listError, MOST, refreshSessions, search, sessions, showArchived, showMore, toggleArchived, total } from "../state/list";
import { MOD, overlay } from "../state/keys";
import { loadOptions } from "../state/options";
import { toggleSidebar } from "../state/sidebar";
import { route } from "../route";
import { Icon } from "./Icon";
import { lazy } from "./lazy";
import { Popover } from "./Popover";
import { Problem } from "./Problem";
import { SessionItem } from "./SessionItem";

const Settings = lazy((later) => later.Settings);

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
          aria-label="Put the list of sessions away"
          title={`Put the list of sessions away (${MOD} B)`}
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
          <button type="button" class="icon-button" aria-label="Back to the others" title="Back to the others" onClick={toggleArchived}>
            <Icon name="cross" />
          </button>
        </p>
      )}
      <nav class="session-list" aria-label="All sessions">
        <List />
      </nav>
      <Popover label="Settings" icon="settings" text="Settings" look="sidebar-settings">
        {(close) => <Settings onChosen={close} />}
      </Popover>
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
  const items = sessions.value;
  const shown = route.value;
  const current = shown.page === "session" ? shown.id : null;
  if (listError.value && !items) return <Problem text={listError.value} onRetry={() => void refreshSessions()} />;
  if (!items) return <Skeletons />;
  if (items.length === 0) return <p class="muted list-empty">{emptyText()}</p>;
  return (
    <>
      {listError.value && <Problem text={listError.value} onRetry={() => void refreshSessions()} />}
      <ul>
        {items.map((session) => (
          <SessionItem key={session.id} session={session} current={session.id === current} />
        ))}
      </ul>
      {total.value > items.length && <More shown={items.length} />}
    </>
  );
}

function More({ shown }: { shown: number }) {
  if (shown >= MOST) return <p class="muted list-empty">Older ones are found by searching.</p>;
  return (
    <button type="button" class="button list-more" onClick={showMore}>
      Show more of {total.value.toLocaleString("en")}
    </button>
  );
}

function emptyText(): string {
  if (search.value) return `No session matches “${search.value}”.`;
  if (showArchived.value) return "Nothing is archived.";
  return "No sessions here. Write a task, and one starts.";
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
