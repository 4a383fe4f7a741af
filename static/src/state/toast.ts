// Short note at the edge of the page, with one way back.

import { signal } from "@preact/signals";

/** Note about a completed action. */
export interface ToastNote {
  text: string;
  /** Label of the button that takes the action back. */
  actionLabel: string;
  onAction: () => void;
}

/** Current note. A newer one replaces it. */
export const toast = signal<ToastNote | null>(null);

/** Shows a note until it is used, closed or `TOAST_MS` old. */
export function showToast(note: ToastNote): void {
  toast.value = note;
}

/** Time in milliseconds that a note stays. It stays longer under the pointer or with the focus. */
export const TOAST_MS = 10_000;
