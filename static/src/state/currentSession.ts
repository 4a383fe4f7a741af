// Session on the screen, for code outside its page: shortcuts, palette, title.

import { computed, effect, signal, type Signal } from "@preact/signals";
import { storeText } from "../storage";
import { statusOfScreen } from "./activity";
import { initialLayout, parseLayout, type PaneLayout } from "./layout";
import { newest, sessionOf } from "./sessionList";
import type { LiveSession } from "./liveSession";
import { isNarrow } from "./narrowScreen";

export interface CurrentSession {
  live: LiveSession;
  layout: Signal<PaneLayout>;
}

export const currentSession = signal<CurrentSession | null>(null);

/**
 * Title of the session. REST has a new title first; the socket's session dates from the connect.
 */
export const currentTitle = computed((): string => {
  const live = currentSession.value?.live;
  return (live && sessionOf(live.id)?.title) || live?.state.value.session?.title || "";
});

/** Live session on the screen. `undefined` for a recording, which shows a past state. */
export const currentLive = computed(() => (currentSession.value?.live.isRecorded ? undefined : currentSession.value?.live));

/** Status from the session's own socket. The list follows seconds later. */
export const currentStatus = computed(() => (currentLive.value ? statusOfScreen(currentLive.value.state.value) : null));

export const isOnScreen = (id: string): boolean => currentLive.value?.id === id;

/** Other sessions that wait for a user. */
export const othersWaiting = computed(() => (newest.value ?? []).filter(({ id, state }) => state === "awaiting_confirmation" && !isOnScreen(id)).length);

/** State from the session's own socket. The list follows seconds later. */
export const currentState = computed(() => currentLive.value?.state.value.agentState ?? null);

/** Key of the last layout used in any session. */
const LAST_LAYOUT = "greenroom.layout";

/** Shows a session until the returned function is called. */
export function showSession(live: LiveSession): () => void {
  const key = `greenroom.layout.${live.id}`;
  const lastLayout = parseLayout(localStorage.getItem(LAST_LAYOUT));
  const stored = parseLayout(localStorage.getItem(key), initialLayout(lastLayout, isNarrow.peek()));
  // A sheet would cover the session that the user opens.
  const layout = signal<PaneLayout>(isNarrow.peek() ? { ...stored, folded: "workspace" } : stored);
  const initial = layout.peek();
  const stop = effect(() => {
    if (layout.value === initial) return;
    const text = JSON.stringify(layout.value);
    storeText(key, text);
    // A narrow screen has no panes. A recording has its own reading layout.
    if (!isNarrow.peek() && !live.isRecorded) storeText(LAST_LAYOUT, text);
  });
  currentSession.value = { live, layout };
  return () => {
    stop();
    if (currentSession.peek()?.live === live) currentSession.value = null;
  };
}

export function toggleWorkspace(): void {
  const layout = currentSession.peek()?.layout;
  if (layout) layout.value = { ...layout.value, folded: layout.value.folded === "workspace" ? null : "workspace" };
}
