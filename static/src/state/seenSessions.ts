// Clears the unread mark of the session on the screen, while the page is visible.

import { effect, signal } from "@preact/signals";
import { storeText } from "../storage";
import type { Session } from "../wire/frame";
import { currentLive } from "./currentSession";
import { seenKey } from "./pendingStorage";
import { newest } from "./sessionList";
import { FIRST_LIST, markChanges } from "./unread";

const isVisible = signal(!document.hidden);
document.addEventListener("visibilitychange", () => (isVisible.value = !document.hidden));

effect(() => {
  if (newest.value) beginMarks(newest.value);
});

effect(() => {
  const live = currentLive.value;
  const state = live?.state.value;
  // During the replay, another tab may be ahead.
  if (live && state?.connection.phase === "live" && isVisible.value) markSeen(live.id, state.lastSeq);
});

/** Stores the newest event on the screen of a session. */
function markSeen(id: string, seq: number): void {
  const text = String(seq);
  if (localStorage.getItem(seenKey(id)) === text) return;
  storeText(seenKey(id), text);
  markChanges.value = markChanges.peek() + 1;
}

/** Takes the sessions of this browser's first list as seen. */
function beginMarks(listed: readonly Session[]): void {
  if (localStorage.getItem(FIRST_LIST) !== null) return;
  for (const { id, latest_seq } of listed) storeText(seenKey(id), String(latest_seq ?? 0));
  storeText(FIRST_LIST, listed.reduce((latest, { created_at }) => (created_at > latest ? created_at : latest), "0"));
  markChanges.value = markChanges.peek() + 1;
}
