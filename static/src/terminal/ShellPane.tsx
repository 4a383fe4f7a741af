// One terminal: the emulator, its state, search, and the touch keys.

import { useEffect, useRef, useState } from "preact/hooks";
import { ErrorNotice } from "../components/ErrorNotice";
import { pageSkeleton } from "../components/lazy";
import { FindBar } from "./FindBar";
import { KeyRow } from "./KeyRow";
import { LinkDialog } from "./LinkDialog";
import { loadEmulator } from "./loadEmulator";
import { ShellStatus } from "./ShellStatus";
import { ShellView } from "./shellView";
import type { TerminalTabs } from "./terminalTabs";

interface ShellPaneProps {
  session: string;
  tabs: TerminalTabs;
  name: string;
}

export function ShellPane({ session, tabs, name }: ShellPaneProps) {
  const host = useRef<HTMLDivElement>(null);
  const [view, setView] = useState<ShellView | null>(null);
  const [attempt, setAttempt] = useState(0);
  const [problem, setProblem] = useState("");

  useEffect(() => {
    let opened: ShellView | null = null;
    let isClosed = false;
    const open = async () => {
      const emulator = await loadEmulator();
      if (isClosed || !host.current) return;
      const options = {
        session,
        name,
        host: host.current,
        onRenamed: (to: string) => tabs.renamed(name, to),
        onEnded: () => void tabs.refresh(),
        onLeave: () => document.getElementById("terminal-tab-shown")?.focus(),
      };
      setView((opened = new ShellView(emulator, options)));
    };
    setProblem("");
    open().catch((error: Error) => setProblem(error.message));
    return () => {
      isClosed = true;
      opened?.close();
      setView(null);
    };
  }, [session, name, attempt]);

  const isAway = view !== null && view.connection.phase.value.kind !== "live";
  return (
    <div class="shell">
      {problem && <ErrorNotice text={`The terminal could not be loaded. ${problem}`} onRetry={() => setAttempt(attempt + 1)} />}
      {view?.isFinding.value && <FindBar screen={view.screen} onClose={() => (view.isFinding.value = false)} />}
      <div class={isAway ? "shell-screen away" : "shell-screen"} ref={host}>
        {!view && !problem && pageSkeleton}
      </div>
      {view && <KeyRow view={view} />}
      {view && <ShellStatus view={view} />}
      {view && view.link.value !== null && <LinkDialog address={view.link.value} onClose={() => (view.link.value = null)} />}
    </div>
  );
}
