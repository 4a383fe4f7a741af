// Choice of the reasoning effort in the menu of a session's model.

import { EFFORT_NAMES, EFFORTS } from "../state/effort";
import type { LiveSession } from "../state/liveSession";

export function EffortChoice({ live }: { live: LiveSession }) {
  const chosen = live.state.value.effort ?? "default";
  return (
    <div class="menu-choice" role="group" aria-label="Effort">
      <span class="muted">Effort</span>
      {EFFORTS.map((effort) => (
        <button key={effort} type="button" class="menu-option" aria-pressed={effort === chosen} onClick={() => effort !== chosen && live.setEffort(effort)}>
          {EFFORT_NAMES[effort]}
        </button>
      ))}
    </div>
  );
}
