// Focus after the next drawing.

/** Focuses an element once the page has been drawn again, which may move or restore the focus. */
export function focusSoon(element: HTMLElement): void {
  requestAnimationFrame(() => element.focus());
}
