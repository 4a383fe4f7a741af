// Title and icon of the tab: current page, waiting sessions, unseen results.

import { computed, effect } from "@preact/signals";
import { serverAddress } from "../basePath";
import { route } from "../route";
import { currentStatus, currentTitle, othersWaiting } from "./currentSession";
import { unseenEnd } from "./notifications";
import type { TabMark } from "./sessionStatus";

/**
 * Number of waiting sessions. The open one reports through its socket, at once and in a hidden
 * page.
 */
const waiting = computed(() => othersWaiting.value + (currentStatus.value?.mark === "waiting" ? 1 : 0));

export type FaviconMark = TabMark | "done";

const faviconMark = computed((): FaviconMark => {
  if (waiting.value > 0) return "waiting";
  return currentStatus.value?.mark ?? unseenEnd.value;
});

const badge = computed((): string => {
  switch (faviconMark.value) {
    case "waiting":
      return `(${waiting.value}) `;
    case "working":
      return "● ";
    case "failed":
      return "✗ ";
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
  const address = faviconMark.value ? `/favicon-${faviconMark.value}.svg` : "/favicon.svg";
  const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
  if (icon) icon.href = serverAddress(address);
});
