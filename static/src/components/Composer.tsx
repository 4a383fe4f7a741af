// Message field. Never locked while the session accepts messages.

import { useStoredText } from "../storage";
import { isBusy, isInterruptible } from "../state/activity";
import { MOD } from "../state/keys";
import type { LiveSession } from "../state/liveSession";
import { draftKey } from "../state/pendingStorage";
import { uploadsOf } from "../state/uploads";
import { lazy } from "./lazy";
import { TextField } from "./TextField";

const Attachments = lazy((later) => later.Attachments);

/** Text of a message with files only. */
const FILES_ALONE = "Look at the attached files.";

export function Composer({ live }: { live: LiveSession }) {
  const [text, change] = useStoredText(draftKey(live.id));
  const state = live.state.value.agentState;
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
  const send = (chord: boolean) => {
    if (isEmpty || uploads.isIncomplete) return;
    live.message(text.trim() || FILES_ALONE, chord && atWork ? "steer" : "queue", uploads.paths);
    uploads.clear();
    change("");
  };

  return (
    <div class="composer">
      {attached && <Attachments uploads={uploads} session={live.id} model={live.state.value.model} />}
      <TextField
        label="Message"
        placeholder={atWork ? "Queue a message, or steer the agent" : "Describe what to do next"}
        value={text}
        rows={1}
        focus
        onChange={change}
        onSend={send}
        onFiles={(files) => uploads.add(files, live.state.peek().model)}
        sendLabel={uploads.isIncomplete ? "Some files are not uploaded" : atWork ? "Queue" : "Send"}
        sendDisabled={isEmpty || uploads.isIncomplete}
      />
      <div class={atWork ? "keys" : "keys while-writing"}>
        {(atWork || text) && <Keys atWork={atWork} stoppable={isInterruptible(live.state.value)} />}
      </div>
    </div>
  );
}

function Keys({ atWork, stoppable }: { atWork: boolean; stoppable: boolean }) {
  if (!atWork) {
    return (
      <span>
        <kbd>Enter</kbd> sends · <kbd>Shift</kbd>+<kbd>Enter</kbd> breaks the line
      </span>
    );
  }
  return (
    <span>
      <kbd>Enter</kbd> queues · <kbd>{MOD}</kbd>+<kbd>Enter</kbd> steers
      {stoppable && (
        <>
          {" "}
          · <kbd>Esc</kbd> interrupts
        </>
      )}
    </span>
  );
}
