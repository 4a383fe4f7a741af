// Colour theme: dark, light, or the system's.

import { effect, signal } from "@preact/signals";
import { writeCookie, readCookie } from "./cookie";

export type Theme = "system" | "light" | "dark";

const COOKIE = "greenroom_theme";
export const THEMES: readonly Theme[] = ["system", "light", "dark"];

export const theme = signal<Theme>(readCookie(COOKIE, THEMES) ?? "system");

effect(() => {
  const isChosen = theme.value !== "system";
  if (isChosen) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
  writeCookie(COOKIE, isChosen ? theme.value : null);
});

export function setTheme(to: Theme): void {
  theme.value = to;
}
