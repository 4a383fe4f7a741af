// Approval dock: open requests, one at a time. An answer in one tab closes the request in all.

import { useEffect, useState } from "preact/hooks";
import { focusField } from "../dom/focusField";
import type { LiveSession } from "../state/liveSession";
import type { ScreenState } from "../state/screenState";
import { unfoldConversation } from "../state/unfoldConversation";
import { ApprovalCard } from "./ApprovalCard";
import { RequestPager } from "./RequestPager";

export function ApprovalDock({ live }: { live: LiveSession }) {
  const state = live.state.value;
  const { approvals } = state;
  const [chosen, setChosen] = useState<string | null>(null);
  useEffect(unfoldConversation, []);
  const answered = answeredRequests(state);
  const open = approvals.filter(({ request }) => !answered.includes(request));
  const shown = approvals.find(({ request }) => request === chosen) ?? open[0] ?? approvals[0];
  if (!shown) return null;
  return (
    <ApprovalCard
      key={shown.request}
      approval={shown}
      isAnswered={answered.includes(shown.request)}
      isLive={state.connection.phase === "live"}
      pager={<RequestPager requests={approvals.map(({ request }) => request)} shown={shown.request} onShow={setChosen} />}
      onAnswer={(answer) => {
        live.answerApproval({ request: shown.request, ...answer });
        setChosen(null);
        // The next request takes the focus by itself.
        if (open.length <= 1) focusField();
      }}
    />
  );
}

/** Returns the requests with an answer of this browser on its way. */
function answeredRequests({ pending }: ScreenState): string[] {
  return pending.flatMap(({ request, rejection }) => (request.action === "confirm" && rejection === undefined ? [request.args.request] : []));
}
