// A session's title, model, context and cost.

import { cost, plural, tokens } from "../format";
import { sessions } from "../state/list";
import type { LiveSession } from "../state/live";
import { isDemo } from "../state/model";
import type { SessionState } from "../state/session";
import { Popover } from "./Popover";
import { SessionMenu } from "./SessionMenu";
import { SidebarButton } from "./SidebarButton";

/** From this share of its context on, a model begins to forget. */
const NEARLY_FULL = 0.8;

export function SessionHeader({ live }: { live: LiveSession }) {
  const state = live.state.value;
  // The list knows of a new title first; the socket tells the session as it was when it connected.
  const session = sessions.value?.find((listed) => listed.id === live.id) ?? state.session;
  return (
    <header class="session-header">
      <SidebarButton />
      <h1 title={session?.title}>{session?.title || "Session"}</h1>
      <Model state={state} />
      <Context state={state} />
      <Cost state={state} />
      <Popover label="About this session" icon="info">
        {() => <About state={state} />}
      </Popover>
      {session && <SessionMenu session={session} />}
    </header>
  );
}

function Model({ state }: { state: SessionState }) {
  if (!state.model) return null;
  if (isDemo(state.model)) {
    return (
      <span class="badge demo" title="A scripted model: it plays a fixed piece of work. Set a model key to use a real one.">
        demo
      </span>
    );
  }
  return <span class="badge model">{state.model}</span>;
}

function Context({ state }: { state: SessionState }) {
  const usage = state.usage;
  if (!usage?.context_limit) return null;
  const full = Math.min(1, usage.context_used / usage.context_limit);
  const label = `Context: ${tokens(usage.context_used)} of ${tokens(usage.context_limit)} tokens`;
  return (
    <div
      class={full > NEARLY_FULL ? "context nearly-full" : "context"}
      role="meter"
      aria-label={label}
      aria-valuenow={Math.round(full * 100)}
      title={label}
    >
      <div style={{ width: `${full * 100}%` }} />
    </div>
  );
}

function Cost({ state }: { state: SessionState }) {
  const usd = state.usage ? state.usage.total_cost_usd : state.session?.usage?.cost_usd;
  const input = state.usage?.total_input_tokens ?? state.session?.usage?.input_tokens ?? 0;
  const output = state.usage?.total_output_tokens ?? state.session?.usage?.output_tokens ?? 0;
  if (input + output === 0) return null;
  return (
    <span class="spent" title={`${tokens(input)} tokens read, ${tokens(output)} written`}>
      {cost(usd) && <strong>{cost(usd)}</strong>}
      <span class="muted">{tokens(input + output)} tokens</span>
    </span>
  );
}

function About({ state }: { state: SessionState }) {
  const { session, usage } = state;
  const facts: [string, string | null | undefined][] = [
    ["Isolation", state.isolation ?? "not known before the sandbox has started"],
    ["Model", state.model && isDemo(state.model) ? `${state.model} (scripted, no real model)` : state.model],
    ["Agent", session?.agent],
    ["Image", session?.image],
    ["Sandbox", session?.sandbox],
    ["Read", usage && `${tokens(usage.total_input_tokens)} tokens`],
    ["Written", usage && `${tokens(usage.total_output_tokens)} tokens`],
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
