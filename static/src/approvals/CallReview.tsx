// Decision about a tool call, in a line below the call.

import { BacktickText } from "../components/BacktickText";
import { Icon } from "../components/Icon";
import { escapeInvisible } from "../escapes";
import { decisionText } from "../state/observations";
import type { TakenDecision } from "../state/rows";

export function CallReview({ decision }: { decision: TakenDecision }) {
  const isDenied = decision.decision === "deny";
  return (
    <p class={isDenied ? "call-review denied" : "call-review"} dir="auto">
      <Icon name={isDenied ? "cross" : "check"} />
      <span>
        <BacktickText text={escapeInvisible(decisionText(decision))} />
        {decision.rule && (
          <span class="muted">
            {" "}
            · Rule added: <BacktickText text={escapeInvisible(decision.rule)} />
          </span>
        )}
      </span>
    </p>
  );
}
