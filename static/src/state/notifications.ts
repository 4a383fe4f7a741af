// Notifications for a user who looks elsewhere: a session finished, failed, or waits.

import { computed, effect, signal } from "@preact/signals";
import { serverAddress } from "../basePath";
import { navigate, route } from "../route";
import { currentLive, currentStatus, currentTitle } from "./currentSession";
import { mergeSessions, newest, sessionOf } from "./sessionList";
import { notificationsOn } from "./notificationSetting";
import { statusOf, type SessionStatus, type StatusKind } from "./sessionStatus";

export type SessionNews = "done" | "failed" | "waits";

const NEWS_TEXTS: Record<SessionNews, string> = { done: "is done", failed: "has failed", waits: "waits for you" };

/** Kinds in which a turn may run. */
const AT_WORK: readonly StatusKind[] = ["starting", "working", "waiting"];

/** Returns the news of a changed status, if any. An interrupted turn is none. */
export function newsOf(before: SessionStatus | undefined, after: SessionStatus): SessionNews | null {
  if (before === undefined || before.kind === after.kind) return null;
  if (after.kind === "waiting") return "waits";
  // Between two failed states only the user's own command has run.
  if (!AT_WORK.includes(before.kind) || before.hasFailedTurn) return null;
  if (after.kind === "failed" || after.kind === "turn_failed") return "failed";
  const isOver = after.kind === "ready" || after.kind === "budget_spent" || after.kind === "quota_exceeded";
  return isOver && before.kind !== "starting" ? "done" : null;
}

// After leaving a session, only the list reports it. The list gets the socket's state here, so no
// news is reported twice.
effect(() => {
  const live = currentLive.value;
  const state = live?.state.value;
  if (!live || !state?.agentState || state.connection.phase !== "live") return;
  const { agentState, reason, lastSeq } = state;
  const listed = sessionOf(live.id);
  if (!listed || (listed.state === agentState && (listed.reason ?? null) === reason) || listed.last_seq > lastSeq) return;
  mergeSessions([{ ...listed, state: agentState, reason, last_seq: lastSeq }]);
});

interface SeenSession {
  id: string;
  title: string;
  status: SessionStatus;
}

/** Newest status of each session: the open one from its socket, the others from the list. */
const seen = computed((): SeenSession[] => {
  const open = currentLive.value;
  const state = open?.state.value;
  const listed = (newest.value ?? []).map((session) => ({ id: session.id, title: session.title, status: statusOf(session) }));
  const status = currentStatus.value;
  if (!open || !status || !state?.agentState || state.connection.phase !== "live") return listed.filter(({ id }) => id !== open?.id);
  const mine = { id: open.id, title: currentTitle.value, status };
  return [...listed.filter(({ id }) => id !== open.id), mine];
});

/** End of a turn while the page was hidden, until the page is visible. */
export const unseenEnd = signal<"done" | "failed" | null>(null);

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) unseenEnd.value = null;
});

const known = new Map<string, SessionStatus>();
/** Newest session of the first list. Ids are ordered by time. */
let newestAtFirst: string | undefined;

/**
 * Returns the previous status of a session. A session newer than the first list counts as starting.
 */
export function statusBefore(id: string, statuses: ReadonlyMap<string, SessionStatus>, newest: string | undefined): SessionStatus | undefined {
  return statuses.get(id) ?? (newest !== undefined && id > newest ? statusOf({ state: "starting" }) : undefined);
}

effect(() => {
  const listed = newest.value;
  if (listed) newestAtFirst ??= listed.reduce((latest, { id }) => (id > latest ? id : latest), "");
  for (const { id, title, status } of seen.value) {
    const news = newsOf(statusBefore(id, known, newestAtFirst), status);
    known.set(id, status);
    if ((news === "done" || news === "failed") && document.hidden) unseenEnd.value = news;
    if (news && notificationsOn.peek() && isElsewhere(id)) showNotification(id, title, news);
  }
});

function isElsewhere(id: string): boolean {
  const shown = route.peek();
  return document.hidden || !document.hasFocus() || shown.page !== "session" || shown.id !== id;
}

function showNotification(id: string, title: string, news: SessionNews): void {
  try {
    // Single notification per session. A newer one replaces it.
    const notification = new Notification(`${title || "A session"} ${NEWS_TEXTS[news]}`, { tag: id, icon: serverAddress("/favicon.svg") });
    notification.onclick = () => {
      window.focus();
      navigate(`/sessions/${id}`);
      notification.close();
    };
  } catch {
    // Android requires a service worker. The title shows the state in any case.
  }
}
