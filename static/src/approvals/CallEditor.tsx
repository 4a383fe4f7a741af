// Field to change a call before it is allowed.

import { useLayoutEffect, useRef } from "preact/hooks";
import { escapeInvisible } from "../escapes";
import type { RequestedCall } from "./requestedCall";
import { RequestedText } from "./RequestedText";
import { marksNote, visiblePieces } from "./visibleText";

interface CallEditorProps {
  call: RequestedCall;
  value: string;
  onChange: (text: string) => void;
}

const LABELS: Record<RequestedCall["kind"], string> = { command: "Command", address: "Address", content: "Content", words: "Call" };
/** Number of lines that the field shows at most. */
const MAX_LINES = 12;

export function CallEditor({ call, value, onChange }: CallEditorProps) {
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const rows = Math.min(MAX_LINES, Math.max(call.kind === "content" ? 4 : 1, value.split("\n").length));
  return (
    <>
      {call.path !== undefined && <p class="confirm-path"><code dir="ltr">{escapeInvisible(call.path)}</code></p>}
      <textarea
        ref={field}
        class="field confirm-editor"
        aria-label={LABELS[call.kind]}
        dir="ltr"
        spellcheck={false}
        rows={rows}
        value={value}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
      {/* A text field hides what the marks show. */}
      {marksNote(visiblePieces(value)) && <RequestedText text={value} />}
    </>
  );
}
