// Session state as a coloured dot with a text label.

import { STATE_LABELS } from "../state/activity";
import type { AgentState } from "../wire/event";

export function StateDot({ state }: { state: AgentState }) {
  const word = STATE_LABELS[state] ?? state;
  return <span class={`dot dot-${state}`} role="img" aria-label={word} title={word} />;
}
