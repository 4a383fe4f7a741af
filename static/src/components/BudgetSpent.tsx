// Ways out of a spent budget: a higher one, another model, or the end of the session.

import { sessionDialog } from "../state/sessionDialog";
import type { LiveSession } from "../state/liveSession";
import { BudgetField } from "./BudgetField";
import { ModelMenu } from "./ModelMenu";
import { Popover } from "./Popover";

export function BudgetSpent({ live }: { live: LiveSession }) {
  const { session } = live.state.value;
  if (!session) return null;
  return (
    <section class="budget-spent" aria-label="Budget spent">
      <p>
        <strong>Budget spent.</strong> Raise it or choose another model to continue.
      </p>
      <div class="budget-ways">
        <BudgetField live={live} />
        <Popover label="Choose another model" text="Model…" buttonClass="button">
          {(close) => <ModelMenu live={live} onChosen={close} />}
        </Popover>
        <button type="button" class="button" onClick={() => (sessionDialog.value = { session, action: "end" })}>
          End…
        </button>
      </div>
    </section>
  );
}
