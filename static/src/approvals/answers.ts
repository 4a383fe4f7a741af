// Answers that an approval request offers.

import type { ApprovalRequest } from "../state/rows";
import type { ApprovalDecision } from "../wire/event";

export interface OfferedAnswer {
  /** Value of `choice`. Absent in requests without choices. */
  choice?: string;
  decision: ApprovalDecision;
  /** Text of the button. */
  text: string;
}

const DECISIONS: Partial<Record<string, ApprovalDecision>> = {
  allow_once: "allow",
  allow_always: "allow_always",
  reject_once: "deny",
  reject_always: "deny",
};
const TEXTS: Record<ApprovalDecision, string> = { allow: "Allow once", allow_always: "Always allow", deny: "Deny" };

/** Returns the answers in the request's order. A choice of an unknown kind is left out. */
export function offeredAnswers({ choices, options }: ApprovalRequest): OfferedAnswer[] {
  const read = (choices ?? []).flatMap(({ id, name, kind }): OfferedAnswer[] => {
    const decision = DECISIONS[kind];
    return typeof id === "string" && typeof name === "string" && decision ? [{ choice: id, decision, text: name || TEXTS[decision] }] : [];
  });
  if (read.length > 0) return read;
  return options.map((decision) => ({ decision, text: TEXTS[decision] ?? decision }));
}
