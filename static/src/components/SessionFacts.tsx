// Facts of a session for “About this session”.

import { useEffect } from "preact/hooks";
import { cost, costNote, costSoFar, plural, tokens } from "../format";
import { isDemo } from "../state/demoModel";
import { EFFORT_NAMES } from "../state/effort";
import type { LiveSession } from "../state/liveSession";
import { loadOptions, options } from "../state/serverOptions";
import { usageTotals } from "../state/screenState";
import type { Session } from "../wire/frame";
import { SessionSecurity } from "../approvals/SessionSecurity";
import { BudgetField } from "./BudgetField";

export function SessionFacts({ live, listed }: { live: LiveSession; listed: Session | undefined }) {
  useEffect(() => void loadOptions(), []);
  const state = live.state.value;
  const { session, usage } = state;
  const { read, written, cost: spent } = usageTotals(state, listed);
  const repository = listed?.repository ?? session?.repository;
  const pricesAsOf = options.value?.prices_as_of;
  const facts: [string, string | null | undefined][] = [
    ["Isolation", state.isolation ?? "Unknown until the sandbox starts"],
    ["Model", state.model && isDemo(state.model) ? `${state.model} (scripted, no real model)` : state.model],
    ["Effort", state.effort && EFFORT_NAMES[state.effort]],
    ["Agent", session?.agent],
    ["Image", session?.image],
    ["Sandbox", session?.sandbox],
    ["Repository", repository && [repository.url, repository.ref].filter(Boolean).join(" at ")],
    ["Branch", repository?.branch],
    ["Context", usage?.context_limit ? `${tokens(usage.context_used)} of ${tokens(usage.context_limit)} tokens` : null],
    ["Read", read ? `${tokens(read)} tokens` : null],
    ["Written", written ? `${tokens(written)} tokens` : null],
    ["Cost", [costSoFar(spent), costNote(spent)].filter(Boolean).join(". ")],
    ["Prices", pricesAsOf && `As of ${pricesAsOf}`],
    ["Budget", session?.budget_usd ? `${costSoFar(spent) || cost(0)} of ${cost(session.budget_usd)} spent` : null],
    ["Events", plural(state.lastSeq, "event")],
    ["Id", session?.id],
  ];
  return (
    <>
      <dl class="facts">
        {facts.map(([name, value]) =>
          value ? (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ) : null,
        )}
      </dl>
      {!live.isRecorded && <SessionSecurity live={live} />}
      <BudgetField live={live} />
    </>
  );
}
