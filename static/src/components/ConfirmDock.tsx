// The agent asks: may it? Answered here or in another tab, it goes away in all.

import { useState } from "preact/hooks";
import { inSight } from "../escapes";
import type { LiveSession } from "../state/live";
import type { Decision } from "../wire/event";

const LABELS: Record<Decision, string> = { allow: "Allow once", allow_always: "Always allow", deny: "Deny" };

export function ConfirmDock({ live }: { live: LiveSession }) {
  const [reason, setReason] = useState("");
  const { question } = live.state.value;
  if (!question) return null;
  const answer = (decision: Decision) => {
    live.answer(question.request, decision, decision === "deny" && reason.trim() ? reason.trim() : undefined);
    setReason("");
  };
  return (
    <section class="confirm" role="group" aria-label="The agent asks">
      <h2>
        May it do this? <span class={question.risk === "high" ? "badge risky" : "badge"}>{inSight(question.risk)} risk</span>
      </h2>
      <pre class="code">{inSight(question.action)}</pre>
      {question.why && <p class="muted">{inSight(question.why)}</p>}
      <div class="confirm-buttons">
        {question.options.map((option) => (
          <button key={option} type="button" class={option === "allow" ? "button primary" : "button"} onClick={() => answer(option)}>
            {LABELS[option] ?? option}
          </button>
        ))}
        <input
          class="field"
          aria-label="Why not"
          placeholder="If not, why? (optional)"
          value={reason}
          onInput={(event) => setReason(event.currentTarget.value)}
        />
      </div>
    </section>
  );
}
