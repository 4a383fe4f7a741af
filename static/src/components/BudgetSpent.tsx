// Ways out of a spent budget: a higher one, another model, or the end of the session.

import { sessionDialog } from "../state/sessionDialog";
import type { LiveSession } from "../state/liveSession";
import { BudgetField } from "./BudgetField";
import { ModelMenu } from "./ModelMenu";
import { Popover } from "./Popover";

export function BudgetSpent({ live }: { live: LiveSession }) {
  const { session } = live.state.value;
  if (!session) return null;
  // Without a budget of its own, the session met a limit of the server.
  const isOwn = (session.budget_usd ?? null) !== null;
  return (
    <section class="budget-spent" aria-label="Budget spent">
      <p>
        <strong>Budget spent.</strong> {isOwn ? "Raise it or choose another model" : "Choose a free model"} to continue.
      </p>
      <div class="budget-ways">
        {isOwn && <BudgetField live={live} />}
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
