// The session on the screen, for what works on it from outside its page: shortcuts, the palette, the title.

import { computed, effect, signal, type Signal } from "@preact/signals";
import { keep } from "../keep";
import { layoutOfNext, readLayout, type Layout } from "./layout";
import { newest, sessionOf } from "./list";
import type { LiveSession } from "./live";
import { isNarrow } from "./width";

export interface Current {
  live: LiveSession;
  layout: Signal<Layout>;
}

export const current = signal<Current | null>(null);

/** Its title. REST knows of a new one first; the socket tells the session as it was when it connected. */
export const currentTitle = computed((): string => {
  const live = current.value?.live;
  return (live && sessionOf(live.id)?.title) || live?.state.value.session?.title || "";
});

/** The session on the screen as it is now; a recording of it tells how it was. */
export const openLive = computed(() => (current.value?.live.isRecorded ? undefined : current.value?.live));

export const isOnScreen = (id: string): boolean => openLive.value?.id === id;

/** How many others wait for a person; this one says so itself. */
export const waitingElsewhere = computed(() => (newest.value ?? []).filter(({ id, state }) => state === "awaiting_confirmation" && !isOnScreen(id)).length);

/** Its state, as its own socket tells it: the list learns of it seconds later. */
export const currentState = computed(() => openLive.value?.state.value.agentState ?? null);

/** How the person left whichever session they laid out last. */
const LAST_LAYOUT = "greenroom.layout";

/** Puts a session on the screen, until the returned function is called. */
export function show(live: LiveSession): () => void {
  const key = `greenroom.layout.${live.id}`;
  const last = readLayout(localStorage.getItem(LAST_LAYOUT));
  const layout = signal(readLayout(localStorage.getItem(key), layoutOfNext(last, isNarrow.peek())));
  const begun = layout.peek();
  const stop = effect(() => {
    if (layout.value === begun) return;
    const text = JSON.stringify(layout.value);
    keep(key, text);
    // Stacked panes are divided for that screen alone, and a recording is another kind of reading.
    if (!isNarrow.peek() && !live.isRecorded) keep(LAST_LAYOUT, text);
  });
  current.value = { live, layout };
  return () => {
    stop();
    if (current.peek()?.live === live) current.value = null;
  };
}

export function toggleWorkspace(): void {
  const layout = current.peek()?.layout;
  if (layout) layout.value = { ...layout.value, folded: layout.value.folded === "workspace" ? null : "workspace" };
}
