// Security of a session in “About this session”: mode, analyzer, rules and findings.

import { BacktickText } from "../components/BacktickText";
import { ErrorNotice } from "../components/ErrorNotice";
import { escapeInvisible } from "../escapes";
import type { LiveSession } from "../state/liveSession";
import { getSecurity, removeSessionRule, type Finding } from "../wire/approvals";
import { useFetched } from "./fetched";
import { modeName } from "./modes";
import { readRisk } from "./risk";
import { RiskBadge } from "./RiskBadge";
import { RuleList } from "./RuleList";

/** Number of findings that are shown. */
const SHOWN = 20;

export function SessionSecurity({ live }: { live: LiveSession }) {
  const { mode, decisions } = live.state.value;
  // A decision may have added a rule.
  const { value, problem, reload, change } = useFetched(() => getSecurity(live.id), [live.id, mode, decisions.length]);
  if (problem && !value) return <ErrorNotice text={problem} onRetry={() => void reload()} />;
  if (!value) return null;
  const { rules = [], findings = [] } = value;
  return (
    <section class="session-security" aria-label="Security">
      <dl class="facts">
        <div>
          <dt>Mode</dt>
          <dd>{modeName(mode ?? value.mode)}</dd>
        </div>
        <div>
          <dt>Analyzer</dt>
          <dd>{value.analyzer}</dd>
        </div>
      </dl>
      {problem && <ErrorNotice text={problem} />}
      {rules.length > 0 && (
        <>
          <h2>Rules of this session</h2>
          <RuleList label="Rules of this session" rules={rules} onRemove={({ id = "" }) => void change(() => removeSessionRule(live.id, id))} />
        </>
      )}
      {findings.length > 0 && (
        <>
          <h2>Findings</h2>
          <ul class="findings" aria-label="Findings">
            {findings.slice(0, SHOWN).map((finding) => (
              <FindingLine key={finding.seq} session={live.id} finding={finding} />
            ))}
          </ul>
        </>
      )}
    </section>
  );
}

function FindingLine({ session, finding }: { session: string; finding: Finding }) {
  const { seq, message } = finding;
  return (
    <li>
      <RiskBadge risk={finding} />{" "}
      <a href={`/sessions/${session}?at=${seq}`}>
        <BacktickText text={escapeInvisible(message)} />
      </a>
      <span class="muted">{readRisk(finding)?.reasons.map(escapeInvisible).join(" · ")}</span>
    </li>
  );
}
