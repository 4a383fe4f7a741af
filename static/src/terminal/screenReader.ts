// Setting: the terminal is readable for screen readers. Costs speed, so it is off at first.

import { signal } from "@preact/signals";
import { storeText } from "../storage";

const KEY = "greenroom.terminal.screen-reader";

export const screenReader = signal(localStorage.getItem(KEY) === "on");

export function setScreenReader(on: boolean): void {
  screenReader.value = on;
  storeText(KEY, on ? "on" : "");
}
