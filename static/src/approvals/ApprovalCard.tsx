// Approval request with its answers.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { BacktickText } from "../components/BacktickText";
import { focusField } from "../dom/focusField";
import { escapeInvisible } from "../escapes";
import type { ApprovalRequest } from "../state/rows";
import type { ClientRequest } from "../wire/frame";
import { CallEditor } from "./CallEditor";
import { CallPreview } from "./CallPreview";
import { CardContent } from "./CardContent";
import { offeredAnswers, type OfferedAnswer } from "./answers";
import { DenyField } from "./DenyField";
import { DockKeys } from "./DockKeys";
import { requestedCall } from "./requestedCall";
import { RiskReasons } from "./RiskReasons";
import { readRisk } from "./risk";
import { RiskBadge } from "./RiskBadge";
import { cardKeys } from "./cardKeys";
import { useCalmFocus } from "./calmFocus";
import { WaitingTime } from "./WaitingTime";

/** Answer without the id of its request. */
export type CardAnswer = Omit<Extract<ClientRequest, { action: "confirm" }>["args"], "request">;

interface ApprovalCardProps {
  approval: ApprovalRequest;
  isAnswered: boolean;
  /** True while the server answers. */
  isLive: boolean;
  pager: ComponentChildren;
  onAnswer: (answer: CardAnswer) => void;
}

/**
 * Time in which a new request takes no press, in milliseconds. A press may be meant for what was
 * there before.
 */
const SETTLE_MS = 350;

export function ApprovalCard({ approval, isAnswered, isLive, pager, onAnswer }: ApprovalCardProps) {
  const [reason, setReason] = useState("");
  const [edited, setEdited] = useState<string | null>(null);
  const [isSettled, setIsSettled] = useState(false);
  const card = useRef<HTMLElement>(null);
  useCalmFocus(card);
  useEffect(() => {
    const timer = setTimeout(() => setIsSettled(true), SETTLE_MS);
    return () => clearTimeout(timer);
  }, []);
  const call = useMemo(() => requestedCall(approval), [approval]);
  const answers = useMemo(() => offeredAnswers(approval), [approval]);
  const risk = readRisk(approval.risk);
  const denials = answers.filter(({ decision }) => decision === "deny");
  const allowances = answers.filter(({ decision }) => decision !== "deny");
  const once = allowances.find(({ decision }) => decision === "allow");

  const answer = ({ choice, decision }: OfferedAnswer) => {
    if (isAnswered || !isSettled) return;
    const words = decision === "deny" ? reason.trim() : "";
    const input = decision !== "deny" && edited !== null && edited !== call.text ? call.changed?.(edited) : undefined;
    onAnswer({ decision, ...(choice !== undefined && { choice }), ...(words && { reason: words }), ...(input && { input: input as NonNullable<CardAnswer["input"]> }) });
  };
  const keyDown = cardKeys({
    allow: () => once && answer(once),
    deny: () => denials[0] && answer(denials[0]),
    leave: () => (edited === null ? focusField() : stopEditing()),
  });
  // A text pasted onto the card is meant for the message field, which had the focus before.
  const passToField = (event: ClipboardEvent) => {
    if (event.target !== card.current) return;
    event.preventDefault();
    focusField();
    document.execCommand("insertText", false, event.clipboardData?.getData("text/plain") ?? "");
  };
  const stopEditing = () => {
    setEdited(null);
    card.current?.focus();
  };
  const button = (offered: OfferedAnswer) => (
    <button
      key={offered.choice ?? offered.decision}
      type="button"
      class={offered === once ? "button primary" : "button"}
      disabled={isAnswered}
      // The second press of a double click is no answer to the next request.
      onClick={(event) => event.detail < 2 && answer(offered)}
    >
      <span>{edited !== null && offered === once ? "Allow the edited call" : <BacktickText text={escapeInvisible(offered.text)} />}</span>
    </button>
  );
  return (
    <section class={`confirm ${risk?.level ?? ""}`} role="group" aria-label="Approval request" tabIndex={-1} ref={card} onKeyDown={keyDown} onPaste={passToField}>
      <div class="confirm-head">
        <h2>Allow this action?</h2>
        {risk && <RiskBadge risk={risk} all />}
        <span class="confirm-status muted" role="status">
          {isAnswered && "Sending your answer…"}
        </span>
        {isLive && <WaitingTime since={approval.at} />}
        {pager}
      </div>
      <CardContent>
        {edited === null ? <CallPreview call={call} diff={approval.diff} /> : <CallEditor call={call} value={edited} onChange={setEdited} />}
        <RiskReasons risk={risk} askedBy={approval.asked_by} explanation={approval.explanation} />
      </CardContent>
      <div class="confirm-buttons" inert={!isSettled}>
        {(edited === null ? allowances : allowances.filter((offered) => offered === once)).map(button)}
        {call.changed && once && edited === null && (
          <button type="button" class="button" disabled={isAnswered} onClick={() => setEdited(call.text)}>
            Edit
          </button>
        )}
        {edited !== null && (
          <button type="button" class="button" onClick={stopEditing}>
            Discard the edit
          </button>
        )}
        {denials[0] && (
          <DenyField reason={reason} disabled={isAnswered} onChange={setReason} onDeny={() => answer(denials[0]!)}>
            {denials.map(button)}
          </DenyField>
        )}
      </div>
      <DockKeys canAllow={once !== undefined} canDeny={denials.length > 0} />
    </section>
  );
}
