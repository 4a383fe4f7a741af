// The menu of the sidebar: how the page behaves, and the way to what is needed seldom.

import { useLayoutEffect, useRef } from "preact/hooks";
import { overlay } from "../state/keys";
import { showArchived, toggleArchived } from "../state/list";
import { canNotify, notifying, toggleNotifying } from "../state/notifying";
import { setTheme, theme, THEMES } from "../theme";

export function Settings({ onChosen }: { onChosen: () => void }) {
  const menu = useRef<HTMLDivElement>(null);
  // Whoever opened it by a key goes on by keys.
  useLayoutEffect(() => menu.current?.querySelector("button")?.focus(), []);
  const chooses = (act: () => void) => () => {
    onChosen();
    act();
  };
  return (
    <div ref={menu} class="settings">
      <div class="menu-choice" role="group" aria-label="Colours">
        <span class="muted">Colours</span>
        {THEMES.map((one) => (
          <button key={one} type="button" class="menu-option" aria-pressed={theme.value === one} onClick={() => setTheme(one)}>
            {one}
          </button>
        ))}
      </div>
      {canNotify && (
        <button
          type="button"
          class="menu-entry"
          title="When a session finishes or waits for you while you look elsewhere"
          aria-pressed={notifying.value}
          onClick={() => void toggleNotifying()}
        >
          Notifications <Mark on={notifying.value} />
        </button>
      )}
      <button type="button" class="menu-entry" aria-pressed={showArchived.value} onClick={chooses(toggleArchived)}>
        Archived sessions <Mark on={showArchived.value} />
      </button>
      <a class="menu-entry" href="/admin" onClick={onChosen}>
        Actors and sandboxes
      </a>
      <button type="button" class="menu-entry" onClick={chooses(() => (overlay.value = "shortcuts"))}>
        Keyboard shortcuts <kbd class="muted">?</kbd>
      </button>
    </div>
  );
}

/** Said aloud by the button itself. */
function Mark({ on }: { on: boolean }) {
  return (
    <span class="muted" aria-hidden="true">
      {on ? "on" : "off"}
    </span>
  );
}
