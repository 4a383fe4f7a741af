// A session's title, model, context, cost and budget.

import { cost, costSoFar, NOT_ALL_KNOWN, tokens } from "../format";
import { current, toggleWorkspace } from "../state/current";
import { MOD } from "../state/keys";
import { sessionOf } from "../state/list";
import type { LiveSession } from "../state/live";
import { isDemo, NOBODY_THINKS } from "../state/model";
import { takenBy, type SessionState, type Spent } from "../state/session";
import type { Session } from "../wire/frame";
import { Icon } from "./Icon";
import { lazy } from "./lazy";
import { Popover } from "./Popover";
import { SessionMenu } from "./SessionMenu";
import { SidebarButton } from "./SidebarButton";

const About = lazy((later) => later.About);
const ModelMenu = lazy((later) => later.ModelMenu);

/** From this share on it is said what the meter of the context measures. */
const HALF_FULL = 0.5;
/** From this share of its context on, a model begins to forget; and of its budget, a person should know. */
const NEARLY_FULL = 0.8;

export function SessionHeader({ live }: { live: LiveSession }) {
  const state = live.state.value;
  // REST knows of a new title first; the socket tells the session as it was when it connected.
  const told = sessionOf(live.id);
  const session = told ?? state.session;
  // A recording tells how it was.
  const toldNow = state.connection.phase === "recorded" ? undefined : told;
  const titleIsComing = !session && (state.connection.phase === "connecting" || state.connection.phase === "replaying");
  return (
    <header class="session-header">
      <SidebarButton />
      <h1 dir="auto" title={session?.title}>{session?.title || (titleIsComing ? "" : "Session")}</h1>
      <Model live={live} />
      <Taken state={state} told={toldNow} />
      <Popover label="About this session" icon="info">
        {() => <About state={state} told={toldNow} />}
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
  const demo = isDemo(model);
  const says = demo ? <Demo /> : model;
  const explained = demo ? `scripted demo. ${NOBODY_THINKS}` : model;
  const fixed = agentState === "ended" || connection.phase === "recorded";
  if (fixed) return <span class="badge model" title={explained}>{says}</span>;
  return (
    <Popover label={`Model: ${explained}. Change`} text={says} look="badge model">
      {(close) => <ModelMenu live={live} onChosen={close} />}
    </Popover>
  );
}

function Demo() {
  return (
    <>
      <span class="wide-only">scripted </span>demo
    </>
  );
}

/** What the session has taken so far, of its model's context and of money; all of it stands in “About this session”, too. */
function Taken({ state, told }: { state: SessionState; told: Session | undefined }) {
  const { read, written, cost } = takenBy(state, told);
  const all = read + written;
  return (
    <div class="taken" title={all > 0 ? `${tokens(read)} tokens read, ${tokens(written)} written` : undefined}>
      <Context state={state} />
      <Budget usd={state.session?.budget_usd} spent={cost} />
      {all > 0 && <span class="tokens">{tokens(all)} tokens</span>}
      {cost.usd > 0 && <span title={cost.isAll ? undefined : NOT_ALL_KNOWN}>{costSoFar(cost)}</span>}
    </div>
  );
}

function Context({ state }: { state: SessionState }) {
  const usage = state.usage;
  if (!usage?.context_limit || usage.context_used === 0) return null;
  const label = `Context: ${tokens(usage.context_used)} of ${tokens(usage.context_limit)} tokens`;
  const share = usage.context_used / usage.context_limit;
  return <Meter name={share > HALF_FULL ? "Context" : ""} share={share} label={label} />;
}

function Budget({ usd, spent }: { usd: number | null | undefined; spent: Spent }) {
  if (!usd) return null;
  return <Meter name="Budget" share={spent.usd / usd} label={`Budget: ${costSoFar(spent)} of ${cost(usd)} spent`} />;
}

function Meter({ name, share, label }: { name: string; share: number; label: string }) {
  const percent = Math.round(Math.min(1, share) * 100);
  return (
    <span class={share > NEARLY_FULL ? "metered nearly-full" : "metered"} title={label}>
      {name && <span aria-hidden="true">{name}</span>}
      <span class="meter" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={percent}>
        <span style={{ width: `${percent}%` }} />
      </span>
    </span>
  );
}
