// The tab's title and icon: what is on the page, and whether somebody is needed.

import { computed, effect } from "@preact/signals";
import { route } from "../route";
import { current, currentTitle } from "./current";
import { newest } from "./list";

/** How many sessions wait for a person. */
export const waiting = computed(() => (newest.value ?? []).filter(({ state }) => state === "awaiting_confirmation").length);

export type Mark = "waiting" | "working" | null;

const mark = computed((): Mark => {
  const state = current.value?.live.state.value.agentState;
  if (waiting.value > 0 || state === "awaiting_confirmation") return "waiting";
  return state === "running" || state === "starting" || state === "interrupting" ? "working" : null;
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
  const badge = waiting.value > 0 ? `(${waiting.value}) ` : mark.value === "working" ? "● " : "";
  document.title = badge + [subject.value, "Greenroom"].filter(Boolean).join(" · ");
});

effect(() => {
  const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
  if (icon) icon.href = mark.value ? `/favicon-${mark.value}.svg` : "/favicon.svg";
});
