// Badge of a call's risk. A low risk has none, except in a request.

import type { RiskAssessment } from "../wire/event";
import { readRisk, RISK_TEXTS } from "./risk";

interface RiskBadgeProps {
  risk: RiskAssessment;
  /** Shows a low risk, too. */
  all?: boolean;
}

export function RiskBadge({ risk, all = false }: RiskBadgeProps) {
  const known = readRisk(risk);
  if (!known || (known.level === "low" && !all)) return null;
  return (
    <span class={`badge risk ${known.level}`} title={known.reasons.join("\n") || undefined}>
      {RISK_TEXTS[known.level]}
    </span>
  );
}
