// Header of a session: title, model, context, cost, budget.

import { cost, costNote, costSoFar, tokens } from "../format";
import { statusOfScreen } from "../state/activity";
import { currentSession, toggleWorkspace } from "../state/currentSession";
import { MOD } from "../state/keys";
import { sessionOf } from "../state/sessionList";
import type { LiveSession } from "../state/liveSession";
import { isDemo, DEMO_NOTE } from "../state/demoModel";
import { EFFORT_NAMES } from "../state/effort";
import { usageTotals, type ScreenState, type SpentCost } from "../state/screenState";
import type { Session } from "../wire/frame";
import { Icon } from "./Icon";
import { lazy } from "./lazy";
import { Popover } from "./Popover";
import { SessionMenu } from "./SessionMenu";
import { SidebarButton } from "./SidebarButton";
import { StateDot } from "./StateDot";

const ForkParentLink = lazy((later) => later.ForkParentLink);
const About = lazy((later) => later.SessionFacts);
const ModelMenu = lazy((later) => later.ModelMenu);

/** Share from which the context meter has a visible label. */
const LABEL_FROM = 0.5;
/** Share that marks the context or the budget as nearly full. Models forget beyond it. */
const WARN_FROM = 0.8;

export function SessionHeader({ live }: { live: LiveSession }) {
  const state = live.state.value;
  // REST has a new title first. The socket's session dates from the connect.
  const listed = sessionOf(live.id);
  const session = listed ?? state.session;
  // A recording shows a past state.
  const listedNow = state.connection.phase === "recorded" ? undefined : listed;
  const titleIsComing = !session && (state.connection.phase === "connecting" || state.connection.phase === "replaying");
  return (
    <header class="session-header">
      <SidebarButton />
      <StateDot status={statusOfScreen(state)} />
      <h1 dir="auto" title={session?.title}>{session?.title || (titleIsComing ? "" : "Session")}</h1>
      {session?.parent && <ForkParentLink parent={session.parent} />}
      <Model live={live} />
      <UsageSummary state={state} listed={listedNow} />
      <Popover label="About this session" icon="info">
        {() => <About live={live} listed={listedNow} />}
      </Popover>
      {state.connection.phase !== "recorded" &&
        // The placeholder keeps the layout stable.
        (session ? <SessionMenu session={session} /> : <span class="icon-button unseen" />)}
      <WorkspaceButton />
    </header>
  );
}

function WorkspaceButton() {
  const isOpen = currentSession.value?.layout.value.folded !== "workspace";
  const label = isOpen ? "Close the workspace" : "Open the workspace";
  return (
    <button type="button" class="icon-button" aria-label={label} title={`${label} (${MOD} J)`} aria-expanded={isOpen} onClick={toggleWorkspace}>
      <Icon name="workspace" />
    </button>
  );
}

function Model({ live }: { live: LiveSession }) {
  const { model, effort, agentState, connection } = live.state.value;
  if (!model) return null;
  const demo = isDemo(model);
  const level = effort ? EFFORT_NAMES[effort].toLowerCase() : "";
  const label = (
    <>
      {demo ? <Demo /> : model}
      {level && ` · ${level}`}
    </>
  );
  const explained = [demo ? `scripted demo. ${DEMO_NOTE}` : model, level && `effort ${level}`].filter(Boolean).join(", ");
  const fixed = agentState === "ended" || connection.phase === "recorded";
  if (fixed) return <span class="badge model" title={explained}>{label}</span>;
  return (
    <Popover label={`Model: ${explained}. Change`} text={label} buttonClass="badge model">
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

/** Context, tokens and cost of the session. “About this session” lists all of them. */
function UsageSummary({ state, listed }: { state: ScreenState; listed: Session | undefined }) {
  const { read, written, cost } = usageTotals(state, listed);
  const all = read + written;
  return (
    <div class="taken" title={all > 0 ? `${tokens(read)} tokens read, ${tokens(written)} written` : undefined}>
      <Context state={state} />
      <Budget usd={state.session?.budget_usd} spent={cost} />
      {all > 0 && <span class="tokens">{tokens(all)} tokens</span>}
      {costSoFar(cost) && <span title={costNote(cost)}>{costSoFar(cost)}</span>}
    </div>
  );
}

function Context({ state }: { state: ScreenState }) {
  const usage = state.usage;
  if (!usage?.context_limit || usage.context_used === 0) return null;
  const label = `Context: ${tokens(usage.context_used)} of ${tokens(usage.context_limit)} tokens`;
  const share = usage.context_used / usage.context_limit;
  return <Meter name={share > LABEL_FROM ? "Context" : ""} share={share} label={label} />;
}

function Budget({ usd, spent }: { usd: number | null | undefined; spent: SpentCost }) {
  if (!usd) return null;
  return <Meter name="Budget" share={spent.usd / usd} label={`Budget: ${costSoFar(spent) || cost(0)} of ${cost(usd)} spent`} />;
}

function Meter({ name, share, label }: { name: string; share: number; label: string }) {
  const percent = Math.round(Math.min(1, share) * 100);
  return (
    <span class={share > WARN_FROM ? "metered nearly-full" : "metered"} title={label}>
      {name && <span aria-hidden="true">{name}</span>}
      <span class="meter" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={percent}>
        <span style={{ width: `${percent}%` }} />
      </span>
    </span>
  );
}
