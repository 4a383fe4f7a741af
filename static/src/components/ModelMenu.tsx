// The models that a session may go on with, from its next turn on.

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { loadOptions, options, optionsError } from "../state/options";
import { isDemo, NOBODY_THINKS } from "../state/model";
import type { LiveSession } from "../state/live";
import { Problem } from "./Problem";

export function ModelMenu({ live, onChosen }: { live: LiveSession; onChosen: () => void }) {
  useEffect(() => void loadOptions(), []);
  const chosen = live.state.value.model;
  const models = options.value?.models;
  const menu = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => menu.current?.querySelector<HTMLElement>("button:enabled")?.focus(), [models]);
  // It stays while it is tried again: the button that was pressed must not lose the focus, or the menu would close.
  if (!models && optionsError.value) return <Problem text={optionsError.value} onRetry={() => void loadOptions()} />;
  if (!models) return <p class="menu-note muted">Loading…</p>;
  if (models.length === 0) return <p class="menu-note muted">This server offers no model</p>;
  return (
    <div ref={menu}>
      <p class="menu-note muted">From the next turn on</p>
      {models.map(({ name, needs }) => (
        <button
          key={name}
          type="button"
          class="menu-entry"
          aria-pressed={name === chosen}
          disabled={Boolean(needs)}
          onClick={() => {
            if (name !== chosen) live.setModel(name);
            onChosen();
          }}
        >
          {name}
          {needs && <span class="menu-needs">needs {needs}</span>}
          {isDemo(name) && <span class="menu-needs">{NOBODY_THINKS}</span>}
        </button>
      ))}
    </div>
  );
}
