// The sheet of keyboard shortcuts.

import { MOD, overlay, setSingleKeys, singleKeys } from "../state/keys";
import { Dialog } from "./Dialog";

interface Shortcut {
  keys: string;
  what: string;
}

const SHORTCUTS: readonly { where: string; list: readonly Shortcut[] }[] = [
  {
    where: "Everywhere",
    list: [
      { keys: `${MOD} K`, what: "Search sessions and actions" },
      { keys: `${MOD} Shift O`, what: "New session" },
      { keys: `${MOD} B`, what: "Put the list of sessions away, and bring it back" },
      { keys: "/", what: "To the field to write in; a letter goes there by itself" },
      { keys: "?", what: "This sheet" },
    ],
  },
  {
    where: "Writing",
    list: [
      { keys: "Enter", what: "Send; queue while the agent works" },
      { keys: `${MOD} Enter`, what: "Steer: the agent reads it at its next step" },
      { keys: "Shift Enter", what: "A new line" },
    ],
  },
  {
    where: "In a session",
    list: [
      { keys: "Esc", what: "Stop what runs; once more to force it" },
      { keys: `${MOD} J`, what: "Open and close the workspace" },
      { keys: "← →", what: "Move the divider, or to the next tab, where it has the focus" },
    ],
  },
];

export function Shortcuts() {
  return (
    <Dialog title="Keyboard shortcuts" kind="sheet" onClose={() => (overlay.value = null)}>
      {SHORTCUTS.map(({ where, list }) => (
        <section key={where} class="shortcuts">
          <h3>{where}</h3>
          <dl>
            {list.map(({ keys, what }) => (
              <div key={keys}>
                <dt>
                  {keys.split(" ").map((key) => (
                    <kbd key={key}>{key}</kbd>
                  ))}
                </dt>
                <dd>{what}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
      <label class="check">
        <input type="checkbox" checked={singleKeys.value} onChange={(event) => setSingleKeys(event.currentTarget.checked)} />
        Single keys act when nothing is being written
      </label>
      <div class="dialog-buttons">
        <button type="button" class="button" autofocus onClick={() => (overlay.value = null)}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
