// Tells a person who looks elsewhere that a session has finished, failed, or waits for them.

import { computed, effect, signal } from "@preact/signals";
import { navigate, route } from "../route";
import type { AgentState } from "../wire/event";
import { currentTitle, openLive } from "./current";
import { learn, newest, sessionOf } from "./list";
import { notifying } from "./notifying";

export type News = "done" | "failed" | "waits";

const WORDS: Record<News, string> = { done: "is done", failed: "has failed", waits: "waits for you" };

/** What a change of state is worth telling. */
export function newsOf(before: AgentState | undefined, after: AgentState): News | null {
  if (before === undefined || before === after) return null;
  if (after === "awaiting_confirmation") return "waits";
  if (after === "failed") return "failed";
  return after === "idle" && (before === "running" || before === "awaiting_confirmation") ? "done" : null;
}

// Once a session is left, the list alone tells of it. It shall know by then what the socket told: else that is news once more.
effect(() => {
  const live = openLive.value;
  const state = live?.state.value;
  if (!live || !state?.agentState || state.connection.phase !== "live") return;
  const { agentState, reason, lastSeq } = state;
  const listed = sessionOf(live.id);
  if (!listed || listed.state === agentState || listed.last_seq > lastSeq) return;
  learn([{ ...listed, state: agentState, reason, last_seq: lastSeq }]);
});

interface Seen {
  id: string;
  title: string;
  state: AgentState;
}

/** The newest known state of each session: that of the open one from its socket, the others' from the list. */
const seen = computed((): Seen[] => {
  const open = openLive.value;
  const state = open?.state.value;
  const listed = (newest.value ?? []).map(({ id, title, state }) => ({ id, title, state }));
  if (!open || !state?.agentState || state.connection.phase !== "live") return listed.filter(({ id }) => id !== open?.id);
  const mine = { id: open.id, title: currentTitle.value, state: state.agentState };
  return [...listed.filter(({ id }) => id !== open.id), mine];
});

/** Whether a session has finished while nobody saw the page, until somebody does. */
export const finished = signal(false);

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) finished.value = false;
});

const known = new Map<string, AgentState>();
/** The newest session of the first list, once there was one; ids are in the order of time. */
let newestAtFirst: string | undefined;

/** The state in which a session was before: one that came up since the first list began as all do. */
export function stateBefore(id: string, states: ReadonlyMap<string, AgentState>, newest: string | undefined): AgentState | undefined {
  return states.get(id) ?? (newest !== undefined && id > newest ? "starting" : undefined);
}

effect(() => {
  const listed = newest.value;
  if (listed) newestAtFirst ??= listed.reduce((latest, { id }) => (id > latest ? id : latest), "");
  for (const { id, title, state } of seen.value) {
    const news = newsOf(stateBefore(id, known, newestAtFirst), state);
    known.set(id, state);
    if (news === "done" && document.hidden) finished.value = true;
    if (news && notifying.peek() && isElsewhere(id)) tell(id, title, news);
  }
});

function isElsewhere(id: string): boolean {
  const shown = route.peek();
  return document.hidden || !document.hasFocus() || shown.page !== "session" || shown.id !== id;
}

function tell(id: string, title: string, news: News): void {
  try {
    // One notification a session: the newest takes the place of the one before.
    const notification = new Notification(`${title || "A session"} ${WORDS[news]}`, { tag: id, icon: "/favicon.svg" });
    notification.onclick = () => {
      window.focus();
      navigate(`/sessions/${id}`);
      notification.close();
    };
  } catch {
    // Android has them by service workers alone. The title tells it all the same.
  }
}
