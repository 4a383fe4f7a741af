// Colours of the emulator, from the tokens of the page.

import type { ITheme } from "@xterm/xterm";

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"] as const;

/** Reads the colours that are in force. The emulator cannot read `light-dark()`. */
export function terminalTheme(host: HTMLElement): ITheme {
  const probe = host.appendChild(document.createElement("span"));
  const colourOf = (className: string, property: "color" | "backgroundColor" = "color") => {
    probe.className = className;
    return getComputedStyle(probe)[property];
  };
  const theme: ITheme = {
    foreground: colourOf("terminal-ink"),
    background: colourOf("terminal-ground", "backgroundColor"),
    cursor: colourOf("terminal-cursor"),
    cursorAccent: colourOf("terminal-ground", "backgroundColor"),
    selectionBackground: colourOf("terminal-selection", "backgroundColor"),
  };
  for (const name of NAMES) {
    const capital = `${name[0]!.toUpperCase()}${name.slice(1)}` as Capitalize<typeof name>;
    theme[name] = colourOf(`ansi ansi-${name}`);
    theme[`bright${capital}` as const] = colourOf(`ansi ansi-bright-${name}`);
  }
  probe.remove();
  return theme;
}
