// Bar above the message field while a plan waits for its approval.

import { useState } from "preact/hooks";
import { focusField } from "../dom/focusField";
import type { LiveSession } from "../state/liveSession";
import { options } from "../state/serverOptions";
import type { ApprovalMode } from "../wire/event";
import { WORK_MODES } from "./modes";
import { APPROVAL_MESSAGE, waitingPlan } from "./waitingPlan";

export function PlanApproval({ live }: { live: LiveSession }) {
  const plan = waitingPlan(live.state.value);
  const [kept, setKept] = useState<string | null>(null);
  const [chosen, setChosen] = useState<ApprovalMode | null>(null);
  if (!plan || plan.key === kept) return null;
  const mode = chosen ?? defaultWorkMode();
  const approve = () => {
    live.setMode(mode, APPROVAL_MESSAGE);
    focusField();
  };
  const keepPlanning = () => {
    setKept(plan.key);
    focusField();
  };
  return (
    <section class="plan-approval" aria-label="Plan approval">
      <h2>Start the work on this plan?</h2>
      <div class="plan-approval-buttons">
        <button type="button" class="button primary" onClick={approve}>
          Approve and start
        </button>
        <label class="plan-mode">
          <span class="muted">Mode</span>
          <select class="field" value={mode} onChange={(event) => setChosen(event.currentTarget.value as ApprovalMode)}>
            {WORK_MODES.map(({ mode, name }) => (
              <option key={mode} value={mode}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <button type="button" class="button" onClick={keepPlanning}>
          Keep planning
        </button>
      </div>
    </section>
  );
}

/** Returns the server's mode for new sessions, if work can be done in it. */
function defaultWorkMode(): ApprovalMode {
  const offered = options.value?.defaults.mode;
  return offered && offered !== "plan" ? offered : "auto";
}
