// The agent asks: may it? Answered here or in another tab, it goes away in all.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { isComposing } from "../composing";
import { inSight } from "../escapes";
import { focusField } from "../focus";
import { plural } from "../format";
import type { LiveSession } from "../state/live";
import { unfoldConversation } from "../state/unfold";
import type { Decision } from "../wire/event";

const LABELS: Record<Decision, string> = { allow: "Allow once", allow_always: "Always allow", deny: "Deny" };

export function ConfirmDock({ live }: { live: LiveSession }) {
  const [reason, setReason] = useState("");
  const { question, sending } = live.state.value;
  useEffect(unfoldConversation, []);
  if (!question) return null;
  const answered = sending.some(
    ({ wish, refusal }) => wish.action === "confirm" && wish.args.request === question.request && refusal === undefined,
  );
  const answer = (decision: Decision) => {
    live.answer(question.request, decision, decision === "deny" && reason.trim() ? reason.trim() : undefined);
    focusField();
  };
  const button = (option: Decision) => (
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
    // The message field has the focus in the midst of this key, and would take it for a line break.
    event.preventDefault();
    if (!event.repeat && reason.trim()) answer("deny");
  };
  return (
    <section class="confirm" role="group" aria-label="The agent asks">
      <div class="confirm-head">
        <h2>May it do this?</h2>
        <span class={question.risk === "high" ? "badge risky" : "badge"} title={`${inSight(question.risk)} risk`}>
          {inSight(question.risk)} risk
        </span>
        <span class="muted" role="status">
          {answered && "Your answer is on its way…"}
        </span>
      </div>
      <Wanted text={question.action} />
      {question.why && (
        <p class="why muted" dir="auto" tabIndex={0}>
          {inSight(question.why)}
        </p>
      )}
      <div class="confirm-buttons">
        {question.options.filter((option) => option !== "deny").map(button)}
        {question.options.includes("deny") && (
          <div class="confirm-deny" role="group" aria-label="Deny">
            <input
              class="field"
              aria-label="Why not"
              dir="auto"
              placeholder="If not, why? (optional)"
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

/** Empty lines, or blanks within a line, that would put what follows them out of sight. */
const GAP = /((?<=^|\n)(?:[^\S\n]*\n){3,}|[^\S\n]{40,})/;

/** What the agent wants to do. However long it is, nobody takes its beginning for all of it. */
function Wanted({ text }: { text: string }) {
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
        {inSight(text).split(GAP).map((piece, index) => (index % 2 === 0 ? piece : <Gap key={index} blanks={piece} />))}
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
