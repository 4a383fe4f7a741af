// Reasons of a call's risk, and the rule, mode or analyzer that asked.

import { BacktickText } from "../components/BacktickText";
import { escapeInvisible } from "../escapes";
import { capitalised } from "../format";
import type { readRisk } from "./risk";

interface RiskReasonsProps {
  risk: ReturnType<typeof readRisk>;
  askedBy?: string | undefined;
  /** Words of the agent. */
  explanation?: string;
}

export function RiskReasons({ risk, askedBy, explanation }: RiskReasonsProps) {
  const reasons = risk?.reasons ?? [];
  const analyzer = reasons.length > 0 && risk?.analyzer ? `analyzer \`${risk.analyzer}\`` : "";
  const sources = [askedBy && `Asked by ${askedBy}`, analyzer && !askedBy?.includes(analyzer) && `risk by ${analyzer}`];
  const source = sources.filter(Boolean).join(", ");
  return (
    <>
      {explanation && (
        <p class="why muted" dir="auto" tabIndex={0}>
          {escapeInvisible(explanation)}
        </p>
      )}
      {reasons.length > 0 && (
        <ul class="confirm-reasons">
          {reasons.map((reason) => (
            <li key={reason} dir="auto">
              <BacktickText text={escapeInvisible(reason)} />
            </li>
          ))}
        </ul>
      )}
      {source && (
        <p class="confirm-source muted">
          <BacktickText text={escapeInvisible(capitalised(source))} />
        </p>
      )}
    </>
  );
}
