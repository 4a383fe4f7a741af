// Dark, light, or as the system has it. Kept in a cookie, so that the server can say it in the page: it is drawn before the
// script comes.

import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const COOKIE = "greenroom_theme";
const A_YEAR_S = 365 * 24 * 60 * 60;
export const THEMES: readonly Theme[] = ["system", "light", "dark"];

export const theme = signal<Theme>(THEMES.find((known) => document.cookie.split("; ").includes(`${COOKIE}=${known}`)) ?? "system");

effect(() => {
  const isChosen = theme.value !== "system";
  if (isChosen) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
  document.cookie = `${COOKIE}=${theme.value}; Path=/; SameSite=Lax; Max-Age=${isChosen ? A_YEAR_S : 0}`;
});

export function setTheme(to: Theme): void {
  theme.value = to;
}

export function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "system";
}
