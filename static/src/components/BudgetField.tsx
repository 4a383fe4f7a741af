// Field for the session's budget.

import { useState } from "preact/hooks";
import type { LiveSession } from "../state/liveSession";

export function BudgetField({ live }: { live: LiveSession }) {
  const { session, agentState, connection } = live.state.value;
  const [text, setText] = useState(session?.budget_usd?.toString() ?? "");
  if (!session || agentState === "ended" || connection.phase === "recorded") return null;
  const usd = text.trim() === "" ? null : Number(text);
  const isValid = usd === null || (usd > 0 && Number.isFinite(usd));
  const submit = (event: Event) => {
    event.preventDefault();
    if (isValid) live.setBudget(usd);
  };
  return (
    <form class="budget-field" onSubmit={submit}>
      <label>
        <span class="muted">Budget in USD</span>
        <input class="field" inputMode="decimal" placeholder="No limit" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <button type="submit" class="button" disabled={!isValid || usd === (session.budget_usd ?? null)}>
        Set
      </button>
    </form>
  );
}
