// Dark, light, or as the system has it.

import { effect, signal } from "@preact/signals";
import { keepCookie, readCookie } from "./cookie";

export type Theme = "system" | "light" | "dark";

const COOKIE = "greenroom_theme";
export const THEMES: readonly Theme[] = ["system", "light", "dark"];

export const theme = signal<Theme>(readCookie(COOKIE, THEMES) ?? "system");

effect(() => {
  const isChosen = theme.value !== "system";
  if (isChosen) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
  keepCookie(COOKIE, isChosen ? theme.value : null);
});

export function setTheme(to: Theme): void {
  theme.value = to;
}
