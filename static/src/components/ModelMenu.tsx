// Menu of models and their effort, effective from the next turn.

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { loadOptions, options, optionsError } from "../state/serverOptions";
import { isDemo, DEMO_NOTE } from "../state/demoModel";
import type { LiveSession } from "../state/liveSession";
import { EffortChoice } from "./EffortChoice";
import { ErrorNotice } from "./ErrorNotice";

export function ModelMenu({ live, onChosen }: { live: LiveSession; onChosen: () => void }) {
  useEffect(() => void loadOptions(), []);
  const chosen = live.state.value.model;
  const models = options.value?.models;
  const menu = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => menu.current?.querySelector<HTMLElement>("button:enabled")?.focus(), [models]);
  // The notice stays during a retry. Removing the focused button would close the menu.
  if (!models && optionsError.value) return <ErrorNotice text={optionsError.value} onRetry={() => void loadOptions()} />;
  if (!models) return <p class="menu-note muted">Loading…</p>;
  if (models.length === 0) return <p class="menu-note muted">No models on this server</p>;
  return (
    <div ref={menu}>
      <p class="menu-note muted">Applies from the next turn</p>
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
          {isDemo(name) && <span class="menu-needs">{DEMO_NOTE}</span>}
        </button>
      ))}
      <EffortChoice live={live} />
    </div>
  );
}
