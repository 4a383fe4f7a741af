// Approval dock. An answer in one tab closes the dock in all.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { isComposing } from "../dom/ime";
import { escapeInvisible } from "../escapes";
import { focusField } from "../dom/focusField";
import { plural } from "../format";
import type { LiveSession } from "../state/liveSession";
import { unfoldConversation } from "../state/unfoldConversation";
import type { ApprovalDecision } from "../wire/event";

const LABELS: Record<ApprovalDecision, string> = { allow: "Allow once", allow_always: "Always allow", deny: "Deny" };

export function ConfirmDock({ live }: { live: LiveSession }) {
  const [reason, setReason] = useState("");
  const { approval, pending } = live.state.value;
  useEffect(unfoldConversation, []);
  if (!approval) return null;
  const answered = pending.some(
    ({ request, rejection }) => request.action === "confirm" && request.args.request === approval.request && rejection === undefined,
  );
  const answer = (decision: ApprovalDecision) => {
    live.answerApproval(approval.request, decision, decision === "deny" && reason.trim() ? reason.trim() : undefined);
    focusField();
  };
  const button = (option: ApprovalDecision) => (
    <button
      key={option}
      type="button"
      class={option === "allow" ? "button primary" : "button"}
      disabled={answered}
      onClick={() => answer(option)}
    >
      {LABELS[option] ?? option}
    </button>
  );
  const keyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || isComposing(event)) return;
    // The message field receives the focus during this key and would insert a line break.
    event.preventDefault();
    if (!event.repeat && reason.trim()) answer("deny");
  };
  return (
    <section class="confirm" role="group" aria-label="Approval request">
      <div class="confirm-head">
        <h2>Allow this action?</h2>
        <span class={approval.risk === "high" ? "badge risky" : "badge"} title={`${escapeInvisible(approval.risk)} risk`}>
          {escapeInvisible(approval.risk)} risk
        </span>
        <span class="muted" role="status">
          {answered && "Sending your answer…"}
        </span>
      </div>
      <RequestedAction text={approval.action} />
      {approval.explanation && (
        <p class="why muted" dir="auto" tabIndex={0}>
          {escapeInvisible(approval.explanation)}
        </p>
      )}
      <div class="confirm-buttons">
        {approval.options.filter((option) => option !== "deny").map(button)}
        {approval.options.includes("deny") && (
          <div class="confirm-deny" role="group" aria-label="Deny">
            <input
              class="field"
              aria-label="Reason"
              dir="auto"
              placeholder="Reason (optional)"
              disabled={answered}
              value={reason}
              onInput={(event) => setReason(event.currentTarget.value)}
              onKeyDown={keyDown}
            />
            {button("deny")}
          </div>
        )}
      </div>
    </section>
  );
}

/** Run of empty lines or blanks long enough to push text out of sight. */
const GAP = /((?<=^|\n)(?:[^\S\n]*\n){3,}|[^\S\n]{40,})/;

/** Requested action. A cut-off text is marked, so its beginning does not pass for the whole. */
function RequestedAction({ text }: { text: string }) {
  const box = useRef<HTMLPreElement>(null);
  const [isCut, setIsCut] = useState(false);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setIsCut(element.scrollHeight > element.clientHeight);
    const resized = new ResizeObserver(measure);
    resized.observe(element);
    measure();
    return () => resized.disconnect();
  }, [text]);

  return (
    <>
      <pre class="code" tabIndex={0} ref={box}>
        {escapeInvisible(text).split(GAP).map((piece, index) => (index % 2 === 0 ? piece : <Gap key={index} blanks={piece} />))}
      </pre>
      {isCut && <p class="cut">{plural(text.trimEnd().split("\n").length, "line")}, scroll to read all</p>}
    </>
  );
}

function Gap({ blanks }: { blanks: string }) {
  const lines = blanks.split("\n").length - 1;
  return (
    <>
      <span class="gap">⋯ {lines > 0 ? plural(lines, "empty line") : plural(blanks.length, "blank")} ⋯</span>
      {lines > 0 && "\n"}
    </>
  );
}
