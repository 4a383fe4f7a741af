// What a session is made of, for those who ask.

import { cost, plural, tokens } from "../format";
import { isDemo } from "../state/model";
import { takenBy, type SessionState } from "../state/session";

export function About({ state }: { state: SessionState }) {
  const { session, usage } = state;
  const { read, written, usd } = takenBy(state);
  const facts: [string, string | null | undefined][] = [
    ["Isolation", state.isolation ?? "not known before the sandbox has started"],
    ["Model", state.model && isDemo(state.model) ? `${state.model} (scripted, no real model)` : state.model],
    ["Agent", session?.agent],
    ["Image", session?.image],
    ["Sandbox", session?.sandbox],
    ["Context", usage?.context_limit ? `${tokens(usage.context_used)} of ${tokens(usage.context_limit)} tokens` : null],
    ["Read", read ? `${tokens(read)} tokens` : null],
    ["Written", written ? `${tokens(written)} tokens` : null],
    ["Cost", usd > 0 ? cost(usd) : null],
    ["Budget", session?.budget_usd ? `${cost(usd)} of ${cost(session.budget_usd)} spent` : null],
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
