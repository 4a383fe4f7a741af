// Message field. Never locked while the session accepts messages.

import { useStoredText } from "../storage";
import { isBusy, isInterruptible } from "../state/activity";
import { MOD } from "../state/keys";
import type { LiveSession } from "../state/liveSession";
import { otherMode, sendMode, type SendMode } from "../state/sendMode";
import { draftKey } from "../state/pendingStorage";
import { uploadsOf } from "../state/uploads";
import { lazy } from "./lazy";
import { TextField } from "./TextField";

const Attachments = lazy((later) => later.Attachments);
const ModeChooser = lazy((later) => later.ModeChooser);
const SendMenu = lazy((later) => later.SendMenu);

/** Text of a message with files only. */
const FILES_ALONE = "Look at the attached files.";

const LABELS: Record<SendMode, string> = { queue: "Queue", steer: "Steer" };
const VERBS: Record<SendMode, string> = { queue: "queues", steer: "steers" };
const PLACEHOLDERS: Record<SendMode, string> = {
  queue: "Queue a message, or steer the agent",
  steer: "Steer the agent, or queue a message",
};

export function Composer({ live }: { live: LiveSession }) {
  const [text, change] = useStoredText(draftKey(live.id));
  const { agentState: state, approvals, mode: approvalMode } = live.state.value;
  const uploads = uploadsOf(live.id);
  const attached = uploads.all.value.length > 0;

  if (state === "ended") {
    return (
      <p class="read-only">
        This session has ended and is read-only. <a href="/sessions">Start a new session</a>
      </p>
    );
  }

  const atWork = isBusy(live.state.value);
  const isEmpty = !text.trim() && uploads.paths.length === 0;
  const stoppable = isInterruptible(live.state.value);
  const mode = sendMode.value;
  const sendAs = (chosen: SendMode) => {
    if (isEmpty || uploads.isIncomplete) return;
    live.message(text.trim() || FILES_ALONE, chosen, uploads.paths);
    uploads.clear();
    change("");
  };
  const send = (chord: boolean) => sendAs(!atWork ? "queue" : chord ? otherMode(mode) : mode);

  return (
    <div class="composer">
      {attached && <Attachments uploads={uploads} session={live.id} model={live.state.value.model} />}
      <TextField
        label="Message"
        placeholder={atWork ? PLACEHOLDERS[mode] : "Describe what to do next"}
        value={text}
        rows={1}
        focus
        onChange={change}
        onSend={send}
        onFiles={(files) => uploads.add(files, live.state.peek().model)}
        sendLabel={uploads.isIncomplete ? "Some files are not uploaded" : atWork ? LABELS[mode] : "Send"}
        sendDisabled={isEmpty || uploads.isIncomplete}
        moreWays={
          atWork && <SendMenu canSend={!isEmpty && !uploads.isIncomplete} onSend={sendAs} onInterrupt={stoppable ? () => live.interrupt() : undefined} />
        }
      />
      <div class="composer-foot">
        {approvalMode && <ModeChooser mode={approvalMode} onChoose={(chosen) => live.setMode(chosen)} />}
        <div class={atWork ? "keys" : "keys while-writing"}>
          {(atWork || text) && <Keys atWork={atWork} mode={mode} stoppable={stoppable && approvals.length === 0} />}
        </div>
      </div>
    </div>
  );
}

function Keys({ atWork, mode, stoppable }: { atWork: boolean; mode: SendMode; stoppable: boolean }) {
  if (!atWork) {
    return (
      <span>
        <kbd>Enter</kbd> sends · <kbd>Shift</kbd>+<kbd>Enter</kbd> breaks the line
      </span>
    );
  }
  return (
    <span>
      <kbd>Enter</kbd> {VERBS[mode]} · <kbd>{MOD}</kbd>+<kbd>Enter</kbd> {VERBS[otherMode(mode)]}
      {stoppable && (
        <>
          {" "}
          · <kbd>Esc</kbd> interrupts
        </>
      )}
    </span>
  );
}
