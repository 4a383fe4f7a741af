// What a session is made of, for those who ask.

import { cost, costSoFar, plural, tokens } from "../format";
import { isDemo } from "../state/model";
import { takenBy, type SessionState } from "../state/session";
import type { Session } from "../wire/frame";

export function About({ state, told }: { state: SessionState; told: Session | undefined }) {
  const { session, usage } = state;
  const { read, written, cost: spent } = takenBy(state, told);
  const facts: [string, string | null | undefined][] = [
    ["Isolation", state.isolation ?? "not known before the sandbox has started"],
    ["Model", state.model && isDemo(state.model) ? `${state.model} (scripted, no real model)` : state.model],
    ["Agent", session?.agent],
    ["Image", session?.image],
    ["Sandbox", session?.sandbox],
    ["Context", usage?.context_limit ? `${tokens(usage.context_used)} of ${tokens(usage.context_limit)} tokens` : null],
    ["Read", read ? `${tokens(read)} tokens` : null],
    ["Written", written ? `${tokens(written)} tokens` : null],
    ["Cost", spent.usd > 0 ? costSoFar(spent) : null],
    ["Budget", session?.budget_usd ? `${costSoFar(spent)} of ${cost(session.budget_usd)} spent` : null],
    ["Events", plural(state.lastSeq, "event")],
    ["Id", session?.id],
  ];
  return (
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
  );
}
