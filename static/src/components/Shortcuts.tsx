// Sheet of keyboard shortcuts.

import { MOD, overlay, setSingleKeys, singleKeys } from "../state/keys";
import { otherMode, sendMode, type SendMode } from "../state/sendMode";
import { Dialog } from "./Dialog";

interface ShortcutEntry {
  keys: string;
  what: string;
}

/** Placeholders: the setting decides which of two effects a key has. */
const SENDS = "sends";
const OTHER = "other";
const EFFECTS: Record<SendMode, string> = { queue: "Queue for after this turn", steer: "Steer the agent at its next step" };

function textOf(what: string): string {
  if (what === SENDS) return sendMode.value === "queue" ? "Send; queue while the agent works" : "Send; steer while the agent works";
  return what === OTHER ? EFFECTS[otherMode(sendMode.value)] : what;
}

const SHORTCUTS: readonly { where: string; list: readonly ShortcutEntry[] }[] = [
  {
    where: "Everywhere",
    list: [
      { keys: `${MOD} K`, what: "Search sessions and actions" },
      { keys: `${MOD} Shift O`, what: "New session" },
      { keys: `${MOD} B`, what: "Hide or show the session list" },
      { keys: "/", what: "Focus the text field; so does any letter" },
      { keys: "?", what: "Show this sheet" },
    ],
  },
  {
    where: "Writing",
    list: [
      { keys: "Enter", what: SENDS },
      { keys: `${MOD} Enter`, what: OTHER },
      { keys: "Shift Enter", what: "Add a line" },
    ],
  },
  {
    where: "In a session",
    list: [
      { keys: "Esc", what: "Interrupt; press again to force" },
      { keys: `${MOD} J`, what: "Open or close the workspace" },
      { keys: "← →", what: "Move the focused divider, or switch tabs" },
    ],
  },
  {
    where: "In an approval request",
    list: [
      { keys: `${MOD} Enter`, what: "Allow once" },
      { keys: `${MOD} Backspace`, what: "Deny" },
      { keys: "Esc", what: "Go to the message field" },
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
                <dd>{textOf(what)}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
      <label class="check">
        <input type="checkbox" checked={singleKeys.value} onChange={(event) => setSingleKeys(event.currentTarget.checked)} />
        Use single-key shortcuts outside text fields
      </label>
      <div class="dialog-buttons">
        <button type="button" class="button" autofocus onClick={() => (overlay.value = null)}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
