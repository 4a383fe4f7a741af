// Text field for messages and tasks. Grows with its text; Enter sends, Shift+Enter breaks the line.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { isComposing } from "../dom/ime";
import { isTouchScreen } from "../dom/focusField";
import { AttachButton } from "./AttachButton";
import { Icon } from "./Icon";

interface TextFieldProps {
  label: string;
  placeholder: string;
  value: string;
  rows: number;
  /** Focus on appearance: with the page, or `"asked"` by the user. */
  focus?: boolean | "asked";
  onChange: (text: string) => void;
  /** `chord`: with Ctrl or ⌘ held. */
  onSend: (chord: boolean) => void;
  /** Receives chosen and pasted files. Without it there is no button for files. */
  onFiles?: (files: readonly File[]) => void;
  /** `null`: no send button in the field. */
  sendLabel: string | null;
  sendDisabled: boolean;
  /** Further ways to send, beside the button. */
  moreWays?: ComponentChildren;
}

/** Scroll position beyond any text, in pixels, which saves measuring. */
const FAR_DOWN = 1e6;

export function TextField({ label, placeholder, value, rows, focus, onChange, onSend, onFiles, sendLabel, sendDisabled, moreWays }: TextFieldProps) {
  const field = useRef<HTMLTextAreaElement>(null);

  /** Width at the last measurement. */
  const width = useRef(0);

  // Focuses before the first paint, so no typed key is lost. A touch screen would open its keyboard
  // and cover the page.
  useLayoutEffect(() => {
    if (focus === "asked" || (focus && !isTouchScreen())) field.current?.focus();
  }, [focus]);

  const fit = () => {
    const element = field.current;
    if (!element) return;
    // Measuring lays out the whole page, so an empty field skips it.
    element.style.height = "";
    if (element.value === "") return;
    const height = element.scrollHeight;
    width.current = element.offsetWidth;
    // A folded field has no height.
    if (height > 0) element.style.height = `${height}px`;
  };
  useLayoutEffect(fit, [value]);

  // Measures again after a change of width or visibility. Runs in the next frame, because a height
  // change inside the observer is a browser error. A shrunk field keeps its caret visible, which is
  // usually at the end.
  useLayoutEffect(() => {
    const element = field.current;
    if (!element) return;
    const resized = new ResizeObserver(() => {
      if (element.offsetWidth !== width.current) requestAnimationFrame(fit);
      if (element.selectionEnd === element.value.length) element.scrollTop = FAR_DOWN;
    });
    resized.observe(element);
    return () => resized.disconnect();
  }, []);

  const keyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.altKey || isComposing(event)) return;
    event.preventDefault();
    // A held Enter sends once, also if pressed on a button that moved the focus here.
    if (!event.repeat) onSend(event.ctrlKey || event.metaKey);
  };

  return (
    <div class={rows > 1 ? "text-field tall" : "text-field"}>
      {onFiles && <AttachButton onFiles={onFiles} />}
      <textarea
        ref={field}
        aria-label={label}
        dir="auto"
        placeholder={placeholder}
        value={value}
        rows={rows}
        onInput={(event) => onChange(event.currentTarget.value)}
        onKeyDown={keyDown}
        onPaste={(event) => {
          const { files = [], types = [] } = event.clipboardData ?? {};
          // Copied table cells include a picture, but the user means the text. A copied file may
          // include its name as text.
          const isText = types.includes("text/plain") && (types.includes("text/html") || types.includes("text/rtf"));
          if (!onFiles || files.length === 0 || isText) return;
          event.preventDefault();
          onFiles([...files]);
        }}
      />
      {sendLabel !== null && (
        <button
          type="button"
          class="send"
          aria-label={sendLabel}
          title={sendLabel}
          disabled={sendDisabled}
          onClick={() => onSend(false)}
        >
          <Icon name="send" />
        </button>
      )}
      {moreWays}
    </div>
  );
}
