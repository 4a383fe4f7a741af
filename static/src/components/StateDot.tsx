// A session's state as a coloured dot, with its word for those who do not see colours.

import { STATE_WORDS } from "../state/activity";
import type { AgentState } from "../wire/event";

export function StateDot({ state }: { state: AgentState }) {
  const word = STATE_WORDS[state] ?? state;
  return <span class={`dot dot-${state}`} role="img" aria-label={word} title={word} />;
}
