// The list of sessions, read from the server every few seconds, and more seldom while the page is hidden.

import { batch, signal } from "@preact/signals";
import type { Session } from "../wire/frame";
import { listSessions, signedOut } from "../wire/rest";

const REFRESH_MS = 4000;
/** How often a hidden page looks: its title and its notifications tell of what happens. */
const HIDDEN_REFRESH_MS = 15_000;

/** What the list shows. `null` until the first answer. */
export const sessions = signal<Session[] | null>(null);
/** The newest ones, whatever is searched for: for those who tell what happens. `null` until the first answer. */
export const newest = signal<Session[] | null>(null);
export const listError = signal<string | null>(null);
export const search = signal("");
export const showArchived = signal(false);
/** How many match in all; the list shows the newest `limit` of them. */
export const total = signal(0);

/** What was told last of each session, also of those that the list leaves out now: archived, or not what is searched for. */
const known = signal<ReadonlyMap<string, Session>>(new Map());

export const sessionOf = (id: string): Session | undefined => known.value.get(id);

/** How often something was told so far. Clocks can be set back, and numbers of events by a backup: this cannot. */
let tellings = 0;
/** Which telling was the last that said how each session is. */
const toldAt = new Map<string, number>();

/** For `learn`: taken before a question, it says what was known when that was asked. */
export const moment = (): number => tellings;

/** Takes in what was told of sessions, for every list that shows them; `asked` is the moment of the question. */
export function learn(told: readonly Session[], asked = 0): void {
  const all = new Map(known.peek());
  tellings += 1;
  for (const session of told) all.set(session.id, newestOf(session, all.get(session.id), asked));
  batch(() => {
    known.value = all;
    for (const list of [sessions, newest]) list.value = list.peek()?.map((session) => all.get(session.id) ?? session) ?? null;
  });
}

/**
 * An answer may have been asked for before what is known already was told. Then its state and its cost may be older; its title need
 * not be, which is no event. What was asked for later is newer, also where it has fewer events.
 */
function newestOf(told: Session, before: Session | undefined, asked: number): Session {
  const wasAskedBefore = (toldAt.get(told.id) ?? 0) > asked;
  if (before && wasAskedBefore && before.last_seq > told.last_seq) {
    const { state, reason, last_seq, usage } = before;
    return { ...told, state, reason, last_seq, usage };
  }
  toldAt.set(told.id, tellings);
  return told;
}

const PAGE = 100;
/** The server lists no more at a time; older sessions are found by searching. */
export const MOST = 500;
let limit = PAGE;

export function showMore(): void {
  limit += PAGE;
  void refreshSessions();
}

export function toggleArchived(): void {
  showArchived.value = !showArchived.peek();
  void refreshSessions();
}

/** The question that is under way. */
let asking: AbortController | null = null;

/** Asks anew. A question that is still under way may be about something else, or from before something was done: it is given up. */
export async function refreshSessions(): Promise<void> {
  asking?.abort();
  const { signal } = (asking = new AbortController());
  try {
    const asked = moment();
    const isPlain = search.peek() === "" && !showArchived.peek();
    const listed = listSessions(search.peek(), showArchived.peek(), limit, signal);
    const [page, first] = await Promise.all([listed, isPlain ? listed : listSessions("", false, PAGE, signal)]);
    if (signal.aborted) return;
    batch(() => {
      sessions.value = page.items;
      newest.value = first.items.slice(0, PAGE);
      learn([...first.items, ...page.items], asked);
      total.value = page.total;
      listError.value = null;
    });
  } catch (error) {
    if (!signal.aborted) listError.value = (error as Error).message;
  } finally {
    if (!signal.aborted) asking = null;
  }
}

/** Keeps the list fresh until the returned function is called. */
export function watchSessions(): () => void {
  let refreshed = 0;
  const refresh = () => {
    if (signedOut.peek()) return;
    if (document.hidden && Date.now() - refreshed < HIDDEN_REFRESH_MS) return;
    refreshed = Date.now();
    void refreshSessions();
  };
  refresh();
  const timer = setInterval(() => asking === null && refresh(), REFRESH_MS);
  document.addEventListener("visibilitychange", refresh);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", refresh);
  };
}
