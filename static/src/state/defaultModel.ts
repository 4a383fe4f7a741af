// Model that a new task starts with, stored in this browser.

import { computed, signal } from "@preact/signals";
import { storeText } from "../storage";
import { options } from "./serverOptions";

const KEY = "greenroom.default-model";

const stored = signal(localStorage.getItem(KEY));

/**
 * Model chosen in the settings. `undefined`: the server's default, also if the server no longer
 * offers the chosen model.
 */
export const defaultModel = computed(() => {
  const model = options.value?.models?.find(({ name }) => name === stored.value);
  return model && !model.needs ? model.name : undefined;
});

/** Chooses the model of new tasks. `undefined`: the server's default. */
export function setDefaultModel(model: string | undefined): void {
  stored.value = model ?? null;
  storeText(KEY, model ?? "");
}
