// Risk of a tool call. Events hold it in an unchecked shape.

import type { RiskAssessment, RiskLevel } from "../wire/event";

export const RISK_TEXTS: Record<RiskLevel, string> = { low: "Low risk", medium: "Medium risk", high: "High risk" };

/** Returns the assessment if it is readable. */
export function readRisk(risk: unknown): Required<RiskAssessment> | null {
  const { level, reasons, analyzer } = (risk ?? {}) as Partial<Record<string, unknown>>;
  if (typeof level !== "string" || !Object.hasOwn(RISK_TEXTS, level)) return null;
  return {
    level: level as RiskLevel,
    reasons: Array.isArray(reasons) ? reasons.filter((reason) => typeof reason === "string") : [],
    analyzer: typeof analyzer === "string" ? analyzer : "",
  };
}
