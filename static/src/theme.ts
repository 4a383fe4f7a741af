// Dark, light, or as the system has it.

import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "greenroom.theme";
export const THEMES: readonly Theme[] = ["system", "light", "dark"];

export const theme = signal<Theme>(THEMES.find((known) => known === localStorage.getItem(KEY)) ?? "system");

effect(() => {
  if (theme.value === "system") {
    localStorage.removeItem(KEY);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(KEY, theme.value);
    document.documentElement.dataset.theme = theme.value;
  }
});

export function setTheme(to: Theme): void {
  theme.value = to;
}

export function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "system";
}
