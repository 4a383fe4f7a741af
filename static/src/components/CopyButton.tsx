// Button that copies a text.

import { useEffect, useState } from "preact/hooks";
import { copyText } from "../dom/copyText";
import { Icon } from "./Icon";

const SHOWN_MS = 1500;

/** `text` is read at the press. */
export function CopyButton({ text }: { text: () => string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [copied]);
  const label = copied ? "Copied" : "Copy";
  const copy = () => copyText(text()).then(() => setCopied(true), () => {});
  return (
    <button type="button" class="icon-button copy" aria-label={label} title={label} onClick={() => void copy()}>
      <Icon name={copied ? "check" : "copy"} />
    </button>
  );
}
