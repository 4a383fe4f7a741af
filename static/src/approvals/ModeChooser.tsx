// Choice of a session's mode, each with its effect in one line.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Icon } from "../components/Icon";
import { Popover } from "../components/Popover";
import { focusField } from "../dom/focusField";
import type { ApprovalMode } from "../wire/event";
import { modeName, MODES } from "./modes";

interface ModeChooserProps {
  mode: ApprovalMode;
  onChoose: (mode: ApprovalMode) => void;
}

export function ModeChooser({ mode, onChoose }: ModeChooserProps) {
  const text: ComponentChildren = (
    <>
      <span class={`mode-mark ${mode}`} aria-hidden="true" />
      {modeName(mode)}
      <Icon name="chevron" />
    </>
  );
  return (
    <Popover label={`Mode: ${modeName(mode)}. Change`} text={text} buttonClass="mode-button">
      {(close) => (
        <ModeMenu
          mode={mode}
          onChoose={(chosen) => {
            if (chosen !== mode) onChoose(chosen);
            close();
            focusField();
          }}
        />
      )}
    </Popover>
  );
}

const STEPS: Partial<Record<string, number>> = { ArrowDown: 1, ArrowUp: -1 };

function ModeMenu({ mode, onChoose }: ModeChooserProps) {
  const menu = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => menu.current?.querySelector<HTMLElement>("[aria-checked=true]")?.focus(), []);
  const keyDown = (event: KeyboardEvent) => {
    const step = STEPS[event.key];
    const entries = [...(menu.current?.querySelectorAll<HTMLElement>("button") ?? [])];
    const at = entries.indexOf(document.activeElement as HTMLElement);
    if (step === undefined || at < 0) return;
    event.preventDefault();
    entries[(at + step + entries.length) % entries.length]?.focus();
  };
  return (
    <div ref={menu} class="mode-menu" role="radiogroup" aria-label="Mode" onKeyDown={keyDown}>
      {MODES.map(({ mode: offered, name, effect }) => (
        <button key={offered} type="button" role="radio" class="menu-entry" aria-checked={offered === mode} onClick={() => onChoose(offered)}>
          <span class={`mode-mark ${offered}`} aria-hidden="true" />
          <span>
            {name}
            <span class="menu-needs">{effect}</span>
          </span>
        </button>
      ))}
    </div>
  );
}
