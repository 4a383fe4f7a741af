// A session's title, model, context, cost and budget.

import { cost, tokens } from "../format";
import { current, toggleWorkspace } from "../state/current";
import { MOD } from "../state/keys";
import { sessionOf } from "../state/list";
import type { LiveSession } from "../state/live";
import { isDemo } from "../state/model";
import { spent, type SessionState } from "../state/session";
import { Icon } from "./Icon";
import { lazy } from "./lazy";
import { Popover } from "./Popover";
import { SessionMenu } from "./SessionMenu";
import { SidebarButton } from "./SidebarButton";

const About = lazy((later) => later.About);
const ModelMenu = lazy((later) => later.ModelMenu);

/** From this share of its context on, a model begins to forget; and of its budget, a person should know. */
const NEARLY_FULL = 0.8;

export function SessionHeader({ live }: { live: LiveSession }) {
  const state = live.state.value;
  // REST knows of a new title first; the socket tells the session as it was when it connected.
  const session = sessionOf(live.id) ?? state.session;
  const titleIsComing = !session && (state.connection.phase === "connecting" || state.connection.phase === "replaying");
  return (
    <header class="session-header">
      <SidebarButton />
      <h1 title={session?.title}>{session?.title || (titleIsComing ? "" : "Session")}</h1>
      <Model live={live} />
      <Context state={state} />
      <Budget state={state} />
      <Cost state={state} />
      <Popover label="About this session" icon="info">
        {() => <About state={state} />}
      </Popover>
      {state.connection.phase !== "recorded" &&
        // Its place is kept until it comes: nothing beside it moves.
        (session ? <SessionMenu session={session} /> : <span class="icon-button unseen" />)}
      <WorkspaceButton />
    </header>
  );
}

function WorkspaceButton() {
  const isOpen = current.value?.layout.value.folded !== "workspace";
  const label = isOpen ? "Close the workspace" : "Open the workspace";
  return (
    <button type="button" class="icon-button" aria-label={label} title={`${label} (${MOD} J)`} aria-expanded={isOpen} onClick={toggleWorkspace}>
      <Icon name="workspace" />
    </button>
  );
}

function Model({ live }: { live: LiveSession }) {
  const { model, agentState, connection } = live.state.value;
  if (!model) return null;
  const name = isDemo(model) ? "demo" : model;
  const fixed = agentState === "ended" || connection.phase === "recorded";
  if (fixed) return <span class={isDemo(model) ? "badge demo" : "badge model"}>{name}</span>;
  return (
    <Popover label={`Model: ${name}. Change`} text={name} look={isDemo(model) ? "badge demo" : "badge model"}>
      {(close) => <ModelMenu live={live} onChosen={close} />}
    </Popover>
  );
}

function Context({ state }: { state: SessionState }) {
  const usage = state.usage;
  if (!usage?.context_limit) return null;
  const label = `Context: ${tokens(usage.context_used)} of ${tokens(usage.context_limit)} tokens`;
  return <Meter name="Context" share={usage.context_used / usage.context_limit} label={label} />;
}

function Budget({ state }: { state: SessionState }) {
  const budget = state.session?.budget_usd;
  if (!budget) return null;
  const usd = spent(state);
  return <Meter name="Budget" share={usd / budget} label={`Budget: ${cost(usd)} of ${cost(budget)} spent`} />;
}

function Meter({ name, share, label }: { name: string; share: number; label: string }) {
  const percent = Math.round(Math.min(1, share) * 100);
  return (
    <span class={share > NEARLY_FULL ? "metered nearly-full" : "metered"} title={label}>
      <span aria-hidden="true">{name}</span>
      <span class="meter" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={percent}>
        <span style={{ width: `${percent}%` }} />
      </span>
    </span>
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
