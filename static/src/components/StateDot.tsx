// Session status as a coloured dot with a text label.

import type { SessionStatus } from "../state/sessionStatus";

export function StateDot({ status: { kind, label, isTicking } }: { status: SessionStatus }) {
  return <span class={`dot dot-${kind}${isTicking ? " ticking" : ""}`} role="img" aria-label={label} title={label} />;
}
