// Settings menu of the sidebar.

import { useLayoutEffect, useRef } from "preact/hooks";
import { BrowserList } from "./BrowserList";
import { overlay } from "../state/keys";
import { showArchived, toggleArchived } from "../state/sessionList";
import { canNotify, notificationsOn, toggleNotifications } from "../state/notificationSetting";
import { setTheme, theme, THEMES } from "../theme";

export function Settings({ onChosen }: { onChosen: () => void }) {
  const menu = useRef<HTMLDivElement>(null);
  // The first entry receives the focus for keyboard users.
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
          title="Notify when a session finishes or waits"
          aria-pressed={notificationsOn.value}
          onClick={() => void toggleNotifications()}
        >
          Notifications <Mark on={notificationsOn.value} />
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
      <BrowserList />
    </div>
  );
}

/** Visible state of a toggle. The button itself announces it. */
function Mark({ on }: { on: boolean }) {
  return (
    <span class="muted" aria-hidden="true">
      {on ? "on" : "off"}
    </span>
  );
}
