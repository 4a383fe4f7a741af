// Reasoning effort: choices and their names.

import type { EffortChoice, ReasoningEffort } from "../wire/event";

/** Names of the choices, in ascending order. */
export const EFFORT_NAMES: Record<EffortChoice, string> = {
  default: "Default",
  minimal: "Minimal",
  low: "Low",
  medium: "Medium",
  high: "High",
};

export const EFFORTS = Object.keys(EFFORT_NAMES) as EffortChoice[];

/** Returns a notice of model and effort. The model's own effort is not named. */
export function modelText(model: string, effort: ReasoningEffort | null): string {
  return effort === null ? `Model: ${model}` : `Model: ${model}, effort: ${EFFORT_NAMES[effort]}`;
}
