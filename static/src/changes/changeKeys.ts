// Keys of the Changes tab, and steps to the next file or hunk.

import { isComposing } from "../dom/ime";

/** Places that a step goes to. */
const PLACES = { file: ".change-title", hunk: ".diff-place.hunk, .change-title[aria-expanded=false]" } as const;

export type ChangePlace = keyof typeof PLACES;

const KEYS: Record<string, [ChangePlace, 1 | -1]> = { n: ["hunk", 1], p: ["hunk", -1], N: ["file", 1], P: ["file", -1] };

/** Handles a key anywhere in the tab, outside of text fields. */
export function changeKeyDown(event: KeyboardEvent, pane: HTMLElement | null): void {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || isComposing(event) || target.matches("input, textarea, select")) return;
  const line = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const row = target.closest<HTMLElement>("tr[tabindex]");
  if (line !== undefined && row) {
    event.preventDefault();
    focusNext([...(row.closest("table")?.querySelectorAll<HTMLElement>("tr[tabindex]") ?? [])], row, line);
  } else if (Object.hasOwn(KEYS, event.key)) {
    event.preventDefault();
    stepThrough(pane, ...KEYS[event.key]!);
  }
}

/** Moves the focus to the next or previous place in the list of diffs. */
export function stepThrough(pane: HTMLElement | null, place: ChangePlace, step: number): void {
  const diffs = pane?.querySelector<HTMLElement>(".changes-diffs");
  if (!diffs) return;
  const places = [...diffs.querySelectorAll<HTMLElement>(PLACES[place])];
  const focused = document.activeElement;
  const from = focused && diffs.contains(focused) && focused !== diffs ? focused : (lastStep.get(diffs) ?? null);
  const next = placeAfter(places, from, step);
  if (!next) return;
  lastStep.set(diffs, next);
  next.focus({ preventScroll: true });
  next.scrollIntoView?.({ block: "start" });
}

/** Place of the last step, for the buttons above the diffs, which take the focus. */
const lastStep = new WeakMap<HTMLElement, HTMLElement>();

/** Returns the next place in a direction. Without an element, the first or last place. */
function placeAfter(places: readonly HTMLElement[], from: Element | null, step: number): HTMLElement | undefined {
  if (!from?.isConnected) return step > 0 ? places[0] : places.at(-1);
  const isAfter = (place: HTMLElement) => (from.compareDocumentPosition(place) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0;
  const isBefore = (place: HTMLElement) => (from.compareDocumentPosition(place) & Node.DOCUMENT_POSITION_PRECEDING) !== 0 && !place.contains(from);
  return step > 0 ? places.find((place) => place !== from && isAfter(place)) : places.findLast((place) => place !== from && isBefore(place));
}

function focusNext(rows: readonly HTMLElement[], row: HTMLElement, step: number): void {
  const next = rows[rows.indexOf(row) + step];
  next?.focus();
  next?.scrollIntoView?.({ block: "nearest" });
}
