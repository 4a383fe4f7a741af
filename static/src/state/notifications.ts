// Notifications for a user who looks elsewhere: a session finished, failed, or waits.

import { computed, effect, signal } from "@preact/signals";
import { serverAddress } from "../basePath";
import { navigate, route } from "../route";
import type { AgentState } from "../wire/event";
import { currentTitle, currentLive } from "./currentSession";
import { mergeSessions, newest, sessionOf } from "./sessionList";
import { notificationsOn } from "./notificationSetting";

export type SessionNews = "done" | "failed" | "waits";

const NEWS_TEXTS: Record<SessionNews, string> = { done: "is done", failed: "has failed", waits: "waits for you" };

/** Returns the news of a state change, if any. */
export function newsOf(before: AgentState | undefined, after: AgentState): SessionNews | null {
  if (before === undefined || before === after) return null;
  if (after === "awaiting_confirmation") return "waits";
  if (after === "failed") return "failed";
  return after === "idle" && (before === "running" || before === "awaiting_confirmation") ? "done" : null;
}

// After leaving a session, only the list reports it. The list gets the socket's state here, so no
// news is reported twice.
effect(() => {
  const live = currentLive.value;
  const state = live?.state.value;
  if (!live || !state?.agentState || state.connection.phase !== "live") return;
  const { agentState, reason, lastSeq } = state;
  const listed = sessionOf(live.id);
  if (!listed || listed.state === agentState || listed.last_seq > lastSeq) return;
  mergeSessions([{ ...listed, state: agentState, reason, last_seq: lastSeq }]);
});

interface SeenSession {
  id: string;
  title: string;
  state: AgentState;
}

/** Newest state of each session: the open one from its socket, the others from the list. */
const seen = computed((): SeenSession[] => {
  const open = currentLive.value;
  const state = open?.state.value;
  const listed = (newest.value ?? []).map(({ id, title, state }) => ({ id, title, state }));
  if (!open || !state?.agentState || state.connection.phase !== "live") return listed.filter(({ id }) => id !== open?.id);
  const mine = { id: open.id, title: currentTitle.value, state: state.agentState };
  return [...listed.filter(({ id }) => id !== open.id), mine];
});

/** True after a session finished while the page was hidden, until the page is visible. */
export const finishedUnseen = signal(false);

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) finishedUnseen.value = false;
});

const known = new Map<string, AgentState>();
/** Newest session of the first list. Ids are ordered by time. */
let newestAtFirst: string | undefined;

/**
 * Returns the previous state of a session. A session newer than the first list counts as starting.
 */
export function stateBefore(id: string, states: ReadonlyMap<string, AgentState>, newest: string | undefined): AgentState | undefined {
  return states.get(id) ?? (newest !== undefined && id > newest ? "starting" : undefined);
}

effect(() => {
  const listed = newest.value;
  if (listed) newestAtFirst ??= listed.reduce((latest, { id }) => (id > latest ? id : latest), "");
  for (const { id, title, state } of seen.value) {
    const news = newsOf(stateBefore(id, known, newestAtFirst), state);
    known.set(id, state);
    if (news === "done" && document.hidden) finishedUnseen.value = true;
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
