// REST calls about approvals: rules of the server and of projects, and the security of a session.

import type { ApprovalMode, RiskLevel } from "./event";
import { call, sessionPath } from "./rest";

/** Rule about tool calls. All given fields must match. */
export interface CallRule {
  /** Id of a rule that can be removed. */
  id?: string;
  tool?: string;
  command?: string;
  path?: string;
  host?: string;
  agent?: string;
  action: "allow" | "ask" | "deny";
  reason?: string;
}

/** Rules of one project, by the source of its workspace. */
export interface RulesOfProject {
  source: string;
  rules: CallRule[];
}

/** Rules of all sessions. */
export interface RuleListing {
  config: CallRule[];
  projects: RulesOfProject[];
}

/** Tool call with a risk. */
export interface Finding {
  seq: number;
  at: string;
  /** Call in words. */
  message: string;
  level: RiskLevel;
  reasons: string[];
  analyzer: string;
}

export interface SecurityFacts {
  mode: ApprovalMode;
  analyzer: string;
  /** Rules of the session. */
  rules: CallRule[];
  findings: Finding[];
}

export const listRules = (): Promise<RuleListing> => call("GET", "/approvals/rules");

export const removeProjectRule = (id: string): Promise<void> => call("DELETE", `/approvals/rules/${encodeURIComponent(id)}`);

export const getSecurity = (session: string): Promise<SecurityFacts> => call("GET", `${sessionPath(session)}/security`);

export const removeSessionRule = (session: string, id: string): Promise<void> =>
  call("DELETE", `${sessionPath(session)}/security/rules/${encodeURIComponent(id)}`);
