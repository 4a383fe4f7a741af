// List of sessions, refreshed every few seconds, and less often while the page is hidden.

import { batch, computed, signal } from "@preact/signals";
import type { Session } from "../wire/frame";
import { listSessions, signedOut } from "../wire/rest";

const REFRESH_MS = 4000;
/** Refresh interval of a hidden page, for its title and notifications. */
const HIDDEN_REFRESH_MS = 15_000;

/** Sessions in the list. `null` until the first answer. */
export const sessions = signal<Session[] | null>(null);
/**
 * Newest sessions, independent of the search. For notifications and the title. `null` until the
 * first answer.
 */
export const newest = signal<Session[] | null>(null);
export const listError = signal<string | null>(null);
export const search = signal("");
/** Longest search that the server takes, in characters. */
export const MAX_QUERY = 200;
export const showArchived = signal(false);
/** Number of all matches. The list shows the newest `limit`. */
export const total = signal(0);

/** Query that `sessions` answers. */
const answered = signal({ text: "", archived: false });

/**
 * Sessions that the list shows: those of the server's answer, or until it arrives, known sessions
 * whose title contains the text. `null`: nothing to show yet.
 */
export const listed = computed((): Session[] | null => {
  const { text, archived } = answered.value;
  if (!sessions.value || archived !== showArchived.value) return null;
  const hasMark = (session: Session) => (session.archived ?? false) === archived;
  if (text === search.value) return sessions.value.filter(hasMark);
  const typed = search.value.trim().toLowerCase();
  const all = new Map([...(newest.value ?? []), ...sessions.value].map((session) => [session.id, session]));
  return [...all.values()].filter((session) => hasMark(session) && session.title.toLowerCase().includes(typed));
});

/** Last known state of every session, including those outside of the list. */
const known = signal<ReadonlyMap<string, Session>>(new Map());

export const sessionOf = (id: string): Session | undefined => known.value.get(id);

/** Number of merges. Clocks and event numbers can go back, this counter cannot. */
let merges = 0;
/** Merge that last updated each session. */
const mergedAt = new Map<string, number>();

/** Returns the current merge number. Taken before a request, it marks what was known then. */
export const mergeCount = (): number => merges;

/** Merges session data into all lists. `asked`: merge number at the time of the request. */
export function mergeSessions(incoming: readonly Session[], requestedAt = 0): void {
  const all = new Map(known.peek());
  merges += 1;
  for (const session of incoming) all.set(session.id, newestOf(session, all.get(session.id), requestedAt));
  batch(() => {
    known.value = all;
    for (const list of [sessions, newest]) list.value = list.peek()?.map((session) => all.get(session.id) ?? session) ?? null;
  });
}

/**
 * Returns the newer data of a session. An answer requested before the known data may have an older
 * state and cost; its title is still valid. An answer requested later is newer, even with fewer
 * events.
 */
function newestOf(incoming: Session, before: Session | undefined, requestedAt: number): Session {
  const wasRequestedBefore = (mergedAt.get(incoming.id) ?? 0) > requestedAt;
  if (before && wasRequestedBefore && before.last_seq > incoming.last_seq) {
    const { state, reason, last_seq, usage, latest, latest_seq } = before;
    return { ...incoming, state, reason, last_seq, usage, latest, latest_seq };
  }
  mergedAt.set(incoming.id, merges);
  return incoming;
}

const PAGE = 100;
/** Limit of the server's list. Search finds older sessions. */
export const MAX_LISTED = 500;
let limit = PAGE;

export function showMore(): void {
  limit += PAGE;
  void refreshSessions();
}

export function toggleArchived(): void {
  showArchived.value = !showArchived.peek();
  void refreshSessions();
}

/** Request in flight. */
let request: AbortController | null = null;

/**
 * Refreshes the list. Aborts a request in flight, which may have another query or precede a change.
 */
export async function refreshSessions(): Promise<void> {
  request?.abort();
  const { signal } = (request = new AbortController());
  try {
    const requestedAt = mergeCount();
    const query = { text: search.peek(), archived: showArchived.peek() };
    const isPlain = query.text === "" && !query.archived;
    const request = listSessions(query.text.trim(), query.archived, limit, signal);
    const [page, first] = await Promise.all([request, isPlain ? request : listSessions("", false, PAGE, signal)]);
    if (signal.aborted) return;
    batch(() => {
      answered.value = query;
      sessions.value = page.items;
      newest.value = first.items.slice(0, PAGE);
      mergeSessions([...first.items, ...page.items], requestedAt);
      total.value = page.total;
      listError.value = null;
    });
  } catch (error) {
    if (!signal.aborted) listError.value = (error as Error).message;
  } finally {
    if (!signal.aborted) request = null;
  }
}

/** Refreshes the list periodically until the returned function is called. */
export function watchSessions(): () => void {
  let refreshed = 0;
  const refresh = () => {
    if (signedOut.peek()) return;
    if (document.hidden && Date.now() - refreshed < HIDDEN_REFRESH_MS) return;
    refreshed = Date.now();
    void refreshSessions();
  };
  refresh();
  const timer = setInterval(() => request === null && refresh(), REFRESH_MS);
  document.addEventListener("visibilitychange", refresh);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", refresh);
  };
}
