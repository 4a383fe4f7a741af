// The models that a session may go on with, from its next turn on.

import { useEffect, useRef } from "preact/hooks";
import { loadOptions, modelNames, options } from "../state/options";
import type { LiveSession } from "../state/live";

export function ModelMenu({ live, onChosen }: { live: LiveSession; onChosen: () => void }) {
  useEffect(() => void loadOptions(), []);
  const chosen = live.state.value.model;
  const names = modelNames(options.value);
  const menu = useRef<HTMLDivElement>(null);
  useEffect(() => menu.current?.querySelector("button")?.focus(), [names.length]);
  if (names.length === 0) return <p class="menu-note muted">Loading…</p>;
  return (
    <div ref={menu}>
      <p class="menu-note muted">From the next turn on</p>
      {names.map((name) => (
        <button
          key={name}
          type="button"
          class="menu-entry"
          aria-pressed={name === chosen}
          onClick={() => {
            if (name !== chosen) live.setModel(name);
            onChosen();
          }}
        >
          {name}
        </button>
      ))}
    </div>
  );
}
