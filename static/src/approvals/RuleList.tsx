// Rules about tool calls, each with its effect. Removable ones have a button.

import { BacktickText } from "../components/BacktickText";
import { escapeInvisible } from "../escapes";
import type { CallRule } from "../wire/approvals";
import { ruleText } from "./ruleText";

interface RuleListProps {
  label: string;
  rules: readonly CallRule[];
  /** Absent for rules that the page cannot remove. */
  onRemove?: (rule: CallRule) => void;
}

const EFFECTS: Record<CallRule["action"], string> = { allow: "Allow", ask: "Ask", deny: "Deny" };

export function RuleList({ label, rules, onRemove }: RuleListProps) {
  return (
    <ul class="rule-list" aria-label={label}>
      {rules.map((rule, index) => (
        <li key={rule.id ?? index}>
          <span class={`badge rule ${rule.action}`}>{EFFECTS[rule.action] ?? rule.action}</span>
          <span class="rule-text">
            <BacktickText text={escapeInvisible(ruleText(rule))} />
            {rule.reason && <span class="muted"> {escapeInvisible(rule.reason)}</span>}
          </span>
          {onRemove && (
            <button type="button" class="button" aria-label={`Remove rule: ${ruleText(rule)}`} onClick={() => onRemove(rule)}>
              Remove
            </button>
          )}
        </li>
      ))}
    </ul>
  );
}
