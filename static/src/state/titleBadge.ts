// The tab's title and icon: what is on the page, whether somebody is needed, and what they have missed.

import { computed, effect } from "@preact/signals";
import { route } from "../route";
import { currentState, currentTitle, openLive, waitingElsewhere } from "./current";
import { finished } from "./notify";

/** How many sessions wait for a person: the one on the page by its own socket, which tells it at once and in a hidden page too. */
const waiting = computed(() => waitingElsewhere.value + (currentState.value === "awaiting_confirmation" ? 1 : 0));

export type Mark = "waiting" | "working" | "done" | null;

const mark = computed((): Mark => {
  if (waiting.value > 0) return "waiting";
  const state = openLive.value?.state.value.agentState;
  if (state === "running" || state === "starting" || state === "interrupting") return "working";
  return finished.value ? "done" : null;
});

const badge = computed((): string => {
  switch (mark.value) {
    case "waiting":
      return `(${waiting.value}) `;
    case "working":
      return "● ";
    case "done":
      return "✓ ";
    case null:
      return "";
  }
});

const subject = computed((): string => {
  switch (route.value.page) {
    case "session":
      return currentTitle.value || "Session";
    case "recording":
      return "Recording";
    case "admin":
      return "Actors";
    case "docs":
      return "REST API";
    default:
      return "";
  }
});

effect(() => {
  document.title = badge.value + [subject.value, "Greenroom"].filter(Boolean).join(" · ");
});

effect(() => {
  const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
  if (icon) icon.href = mark.value ? `/favicon-${mark.value}.svg` : "/favicon.svg";
});
