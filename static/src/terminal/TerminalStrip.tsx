// Tabs of the terminals: choose, open, rename, close.

import { useState } from "preact/hooks";
import { Dialog } from "../components/Dialog";
import { ErrorNotice } from "../components/ErrorNotice";
import { Icon } from "../components/Icon";
import { Popover } from "../components/Popover";
import { isComposing } from "../dom/ime";
import { firstLine } from "../format";
import type { LiveSession } from "../state/liveSession";
import type { TerminalTabId, TerminalTabs } from "./terminalTabs";
import { TERMINALS_LIMIT } from "./terminalsRest";

interface TerminalStripProps {
  live: LiveSession;
  tabs: TerminalTabs;
}

export function TerminalStrip({ live, tabs }: TerminalStripProps) {
  const [dialog, setDialog] = useState<{ action: "rename" | "close"; name: string } | null>(null);
  const shown = tabs.shown.value;
  const all: TerminalTabId[] = [
    ...tabs.names.value.map((name): TerminalTabId => ({ kind: "shell", name })),
    ...tabs.runs.value.map((row): TerminalTabId => ({ kind: "run", row })),
  ];
  const isShown = (tab: TerminalTabId) => keyOf(tab) === keyOf(shown);

  /** Handles arrow keys between tabs. */
  const keyDown = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    // The tabs of the workspace listen, too.
    event.stopPropagation();
    const next = all[(all.findIndex(isShown) + step + all.length) % all.length];
    if (next) tabs.show(next);
  };

  return (
    <div class="terminal-strip">
      <div class="tabs" role="tablist" aria-label="Terminals" onKeyDown={keyDown}>
        {all.map((tab) => (
          <button
            key={keyOf(tab)}
            type="button"
            class="tab"
            role="tab"
            id={isShown(tab) ? "terminal-tab-shown" : undefined}
            aria-selected={isShown(tab)}
            aria-controls="terminal-panel"
            tabIndex={isShown(tab) ? 0 : -1}
            onClick={() => tabs.show(tab)}
            onDblClick={() => tab.kind === "shell" && setDialog({ action: "rename", name: tab.name })}
          >
            {tab.kind === "shell" ? tab.name : <RunTitle live={live} row={tab.row} />}
          </button>
        ))}
      </div>
      <button
        type="button"
        class="icon-button"
        aria-label="New terminal"
        title={tabs.isFull ? `At most ${TERMINALS_LIMIT} terminals` : "New terminal"}
        disabled={tabs.isFull || live.state.value.agentState === "ended"}
        onClick={() => tabs.add()}
      >
        <Icon name="plus" />
      </button>
      <Popover label="Actions for this terminal" icon="more">
        {(close) => {
          const choose = (act: () => void) => () => {
            close();
            act();
          };
          if (shown.kind === "run") return <MenuItem text="Close the view" onClick={choose(() => tabs.closeRun(shown.row))} />;
          return (
            <>
              <MenuItem text="Rename…" onClick={choose(() => setDialog({ action: "rename", name: shown.name }))} />
              <MenuItem text="Close…" danger onClick={choose(() => setDialog({ action: "close", name: shown.name }))} />
            </>
          );
        }}
      </Popover>
      {dialog?.action === "rename" && <RenameTerminal tabs={tabs} name={dialog.name} onClose={() => setDialog(null)} />}
      {dialog?.action === "close" && <CloseTerminal tabs={tabs} name={dialog.name} onClose={() => setDialog(null)} />}
    </div>
  );
}

const keyOf = (tab: TerminalTabId) => (tab.kind === "shell" ? `shell ${tab.name}` : `run ${tab.row}`);

function RunTitle({ live, row }: { live: LiveSession; row: string }) {
  const found = live.state.value.rows.find(({ key }) => key === row);
  const command = found?.kind === "tool" && typeof found.args.command === "string" ? found.args.command : "command";
  return <code class="terminal-run">{firstLine(command)}</code>;
}

function MenuItem({ text, danger, onClick }: { text: string; danger?: boolean; onClick: () => void }) {
  return (
    <button type="button" class={danger ? "menu-entry danger" : "menu-entry"} onClick={onClick}>
      {text}
    </button>
  );
}

interface TerminalDialogProps {
  tabs: TerminalTabs;
  name: string;
  onClose: () => void;
}

function RenameTerminal({ tabs, name, onClose }: TerminalDialogProps) {
  const [to, setTo] = useState(name);
  const [problem, setProblem] = useState("");
  const rename = async () => {
    const found = await tabs.rename(name, to.trim());
    if (found) setProblem(found);
    else onClose();
  };
  return (
    <Dialog title="Rename the terminal" onClose={onClose}>
      <input
        class="field"
        aria-label="Name"
        maxLength={32}
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        autofocus
        value={to}
        onInput={(event) => setTo(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Enter" && !isComposing(event) && void rename()}
      />
      {problem && <ErrorNotice text={problem} />}
      <div class="dialog-buttons">
        <button type="button" class="button" onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="button primary" disabled={to.trim() === ""} onClick={() => void rename()}>
          Rename
        </button>
      </div>
    </Dialog>
  );
}

function CloseTerminal({ tabs, name, onClose }: TerminalDialogProps) {
  const close = () => {
    onClose();
    void tabs.close(name);
  };
  return (
    <Dialog title="Close this terminal?" onClose={onClose}>
      <p>
        All programs in <code>{name}</code> end.
      </p>
      <div class="dialog-buttons">
        <button type="button" class="button" autofocus onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="button danger" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
