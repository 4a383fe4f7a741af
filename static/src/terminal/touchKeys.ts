// Bytes of the keys that a touch keyboard lacks. Pure.

export const ROW_KEYS = ["Esc", "Tab", "Ctrl", "Left", "Up", "Down", "Right"] as const;
export type RowKey = (typeof ROW_KEYS)[number];

/** Final letter of an arrow's escape sequence. */
const ARROWS: Partial<Record<RowKey, string>> = { Up: "A", Down: "B", Right: "C", Left: "D" };

export interface KeyModes {
  /** True while the next key is pressed with Ctrl. */
  ctrl: boolean;
  /** Mode in which programs expect other arrows (DECCKM). */
  applicationCursor: boolean;
}

/** Returns the input of a key. "" for Ctrl, which changes the next key only. */
export function rowKeyInput(key: RowKey, { ctrl, applicationCursor }: KeyModes): string {
  const arrow = ARROWS[key];
  if (arrow !== undefined) return ctrl ? `\x1b[1;5${arrow}` : applicationCursor ? `\x1bO${arrow}` : `\x1b[${arrow}`;
  if (key === "Esc") return "\x1b";
  return key === "Tab" ? "\t" : "";
}

/** Returns the input of a typed text while Ctrl is on. `null`: Ctrl does not change the text. */
export function withCtrl(typed: string): string | null {
  if (typed === " ") return "\x00";
  if (typed === "?") return "\x7f";
  const upper = typed.toUpperCase();
  return /^[@A-Z[\\\]^_]$/.test(upper) ? String.fromCharCode(upper.charCodeAt(0) & 0x1f) : null;
}
