// The agent asks: may it? Answered here or in another tab, it goes away in all.

import { useEffect, useState } from "preact/hooks";
import { inSight } from "../escapes";
import { focusField } from "../focus";
import type { LiveSession } from "../state/live";
import { unfoldConversation } from "../state/unfold";
import type { Decision } from "../wire/event";

const LABELS: Record<Decision, string> = { allow: "Allow once", allow_always: "Always allow", deny: "Deny" };

export function ConfirmDock({ live }: { live: LiveSession }) {
  const [reason, setReason] = useState("");
  const { question, sending } = live.state.value;
  useEffect(unfoldConversation, []);
  if (!question) return null;
  const answered = sending.some(
    ({ wish, refusal }) => wish.action === "confirm" && wish.args.request === question.request && refusal === undefined,
  );
  const answer = (decision: Decision) => {
    live.answer(question.request, decision, decision === "deny" && reason.trim() ? reason.trim() : undefined);
    focusField();
  };
  return (
    <section class="confirm" role="group" aria-label="The agent asks">
      <div class="confirm-head">
        <h2>May it do this?</h2>
        <span class={question.risk === "high" ? "badge risky" : "badge"} title={`${inSight(question.risk)} risk`}>
          {inSight(question.risk)} risk
        </span>
        <span class="muted" role="status">
          {answered && "Your answer is on its way…"}
        </span>
      </div>
      <pre class="code" tabIndex={0}>
        {inSight(question.action)}
      </pre>
      {question.why && (
        <p class="why muted" tabIndex={0}>
          {inSight(question.why)}
        </p>
      )}
      <div class="confirm-buttons">
        {question.options.map((option) => (
          <button
            key={option}
            type="button"
            class={option === "allow" ? "button primary" : "button"}
            disabled={answered}
            onClick={() => answer(option)}
          >
            {LABELS[option] ?? option}
          </button>
        ))}
        <input
          class="field"
          aria-label="Why not"
          placeholder="If not, why? (optional)"
          disabled={answered}
          value={reason}
          onInput={(event) => setReason(event.currentTarget.value)}
        />
      </div>
    </section>
  );
}
