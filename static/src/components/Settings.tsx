// Settings of this browser, and facts about the server.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { defaultModel, setDefaultModel } from "../state/defaultModel";
import { overlay } from "../state/keys";
import { canNotify, notificationsOn, toggleNotifications } from "../state/notificationSetting";
import { sendMode, setSendMode, type SendMode } from "../state/sendMode";
import { loadOptions, options } from "../state/serverOptions";
import { signOut } from "../state/signOut";
import { setTheme, theme, THEMES } from "../theme";
import { ApprovalRules } from "../approvals/ApprovalRules";
import { BrowserList } from "./BrowserList";
import { Dialog } from "./Dialog";
import { ErrorNotice } from "./ErrorNotice";

const SEND_MODES: readonly { mode: SendMode; label: string }[] = [
  { mode: "queue", label: "Queues" },
  { mode: "steer", label: "Steers" },
];

export function Settings() {
  useEffect(() => void loadOptions(), []);
  return (
    <Dialog title="Settings" kind="sheet" onClose={close}>
      <div class="settings">
        <Section title="This browser">
          <Choice label="Colours">
            {THEMES.map((one) => (
              <Option key={one} text={one} isOn={theme.value === one} onClick={() => setTheme(one)} />
            ))}
          </Choice>
          <Choice label="Enter while the agent works">
            {SEND_MODES.map(({ mode, label }) => (
              <Option key={mode} text={label} isOn={sendMode.value === mode} onClick={() => setSendMode(mode)} />
            ))}
          </Choice>
          <DefaultModel />
          {canNotify && <Notifications />}
        </Section>
        <Section title="Help">
          <button type="button" class="menu-entry" onClick={() => (overlay.value = "shortcuts")}>
            Keyboard shortcuts <kbd class="muted">?</kbd>
          </button>
          <a class="menu-entry" href="/api/docs" onClick={close}>
            API docs
          </a>
        </Section>
        <Section title="Server">
          <a class="menu-entry" href="/admin" onClick={close}>
            Actors and sandboxes
          </a>
          <p class="setting">
            Version <span class="muted">{options.value?.version ?? "…"}</span>
          </p>
          <SignOut />
        </Section>
        <ApprovalRules />
        <BrowserList />
      </div>
      <div class="dialog-buttons">
        <button type="button" class="button" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

const close = () => (overlay.value = null);

function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      {children}
    </section>
  );
}

function Choice({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div class="setting" role="group" aria-label={label}>
      <span>{label}</span>
      <span class="setting-options">{children}</span>
    </div>
  );
}

function Option({ text, isOn, onClick }: { text: string; isOn: boolean; onClick: () => void }) {
  return (
    <button type="button" class="menu-option" aria-pressed={isOn} onClick={onClick}>
      {text}
    </button>
  );
}

function DefaultModel() {
  const { models = [], defaults } = options.value ?? {};
  if (models.length === 0) return null;
  return (
    <label class="setting">
      Model of new tasks
      <select
        class="field"
        value={defaultModel.value ?? ""}
        onChange={(event) => setDefaultModel(event.currentTarget.value || undefined)}
      >
        <option value="">Server's default ({defaults?.model})</option>
        {models.map(({ name, needs }) => (
          <option key={name} value={name} disabled={Boolean(needs)}>
            {needs ? `${name} (needs ${needs})` : name}
          </option>
        ))}
      </select>
    </label>
  );
}

function Notifications() {
  return (
    <button
      type="button"
      class="menu-entry"
      title="Notify when a session finishes or waits"
      aria-pressed={notificationsOn.value}
      onClick={() => void toggleNotifications()}
    >
      Notifications{" "}
      <span class="muted" aria-hidden="true">
        {notificationsOn.value ? "on" : "off"}
      </span>
    </button>
  );
}

function SignOut() {
  const [problem, setProblem] = useState<string | null>(null);
  const leave = async () => {
    try {
      await signOut();
      close();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <>
      <button type="button" class="menu-entry" onClick={() => void leave()}>
        Sign out
      </button>
      {problem && <ErrorNotice text={`Couldn't sign out: ${problem}`} />}
    </>
  );
}
