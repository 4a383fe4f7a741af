// The field that messages and tasks are written in: grows with its text, Enter sends, Shift+Enter breaks the line.

import { useLayoutEffect, useRef } from "preact/hooks";
import { isComposing } from "../composing";
import { isTouched } from "../focus";
import { AttachButton } from "./AttachButton";
import { Icon } from "./Icon";

interface Props {
  label: string;
  placeholder: string;
  value: string;
  rows: number;
  /** It has the focus when it appears: with its page, or because somebody `asked` for it. */
  focus?: boolean | "asked";
  onChange: (text: string) => void;
  /** `chord`: with Ctrl or ⌘ held. */
  onSend: (chord: boolean) => void;
  /** Takes files that are chosen or pasted; without it there is no button for them. */
  onFiles?: (files: readonly File[]) => void;
  /** `null`: what sends it stands elsewhere. */
  sendLabel: string | null;
  sendDisabled: boolean;
}

/** Further than any text goes, in pixels: how far this one does need not be measured. */
const FAR_DOWN = 1e6;

export function TextField({ label, placeholder, value, rows, focus, onChange, onSend, onFiles, sendLabel, sendDisabled }: Props) {
  const field = useRef<HTMLTextAreaElement>(null);

  /** How wide it was when it was measured. */
  const width = useRef(0);

  // With the field's first picture: what is typed then must not get lost. On a touch screen the keyboard would come up by itself, and
  // cover the page that somebody came to see.
  useLayoutEffect(() => {
    if (focus === "asked" || (focus && !isTouched())) field.current?.focus();
  }, [focus]);

  const fit = () => {
    const element = field.current;
    if (!element) return;
    // Measuring lays the whole page out: an empty field is as high as its rows anyway.
    element.style.height = "";
    if (element.value === "") return;
    const height = element.scrollHeight;
    width.current = element.offsetWidth;
    // Folded away it has none.
    if (height > 0) element.style.height = `${height}px`;
  };
  useLayoutEffect(fit, [value]);

  // Whatever makes it wider or narrower, or shows it again. In the next frame: a height that changes while sizes are told is an error
  // to browsers. And where it gave way, its caret, which is at the end nearly always, stays in sight.
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
    // Held down it has done its work, be it here or on a button that gave the focus to this field.
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
          // Of a table's cells there is a picture, too: who copied text means the text. Beside a file there may be its name.
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
    </div>
  );
}
