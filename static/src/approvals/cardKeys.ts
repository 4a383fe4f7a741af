// Keys of the approval dock. Enter alone never answers: it may be meant for the message field.

import { isComposing } from "../dom/ime";

interface CardActions {
  allow: () => void;
  deny: () => void;
  /** Leaves the dock without an answer. */
  leave: () => void;
}

/** Returns the handler of the dock's keys. Text fields keep their own keys, except for allowing. */
export function cardKeys({ allow, deny, leave }: CardActions): (event: KeyboardEvent) => void {
  return (event) => {
    if (event.defaultPrevented || isComposing(event)) return;
    const isModified = (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey;
    const isInField = event.target instanceof Element && event.target.matches("input, textarea");
    const isInDenial = event.target instanceof Element && event.target.closest(".confirm-deny") !== null;
    const act = event.key === "Escape" ? leave : isModified && event.key === "Enter" && !isInDenial ? allow : isModified && event.key === "Backspace" && !isInField ? deny : undefined;
    if (!act) return;
    event.preventDefault();
    if (!event.repeat) act();
  };
}
