// Output of a command in a read-only emulator, with its colours and cursor movements.

import { effect, signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { outputOf } from "../state/commands";
import type { LiveSession } from "../state/liveSession";
import type { ToolRow } from "../state/rows";
import type { EmulatorScreen } from "./emulatorScreen";
import { LinkDialog } from "./LinkDialog";
import { loadEmulator } from "./loadEmulator";
import { OutputWriter } from "./outputWriter";
import { screenReader } from "./screenReader";
import { followTheme, watchSize } from "./shellView";
import { terminalTheme } from "./terminalTheme";

interface CommandScreenProps {
  live: LiveSession;
  /** Key of the command's row. */
  row: string;
}

export function CommandScreen({ live, row }: CommandScreenProps) {
  const host = useRef<HTMLDivElement>(null);
  const link = useRef(signal<string | null>(null)).current;
  const [problem, setProblem] = useState("");

  useEffect(() => {
    const stops: (() => void)[] = [];
    let isClosed = false;
    const open = async () => {
      const { EmulatorScreen } = await loadEmulator();
      if (isClosed || !host.current) return;
      const screen: EmulatorScreen = new EmulatorScreen(host.current, {
        theme: terminalTheme(host.current),
        isReadOnly: true,
        isScreenReader: screenReader.peek(),
        onInput: () => {},
        onBytes: () => {},
        onLink: (address) => (link.value = address),
        onFind: () => {},
        onLeave: () => document.getElementById("terminal-tab-shown")?.focus(),
      });
      const fit = () => {
        const size = screen.fittingSize();
        if (size) screen.resize(size);
      };
      const writer = new OutputWriter(screen);
      fit();
      stops.push(
        () => screen.dispose(),
        followTheme(screen, host.current),
        watchSize(host.current, fit),
        effect(() => {
          const found = commandRow(live, row);
          if (found) writer.show(outputOf(found));
        }),
      );
    };
    open().catch((error: Error) => setProblem(error.message));
    return () => {
      isClosed = true;
      for (const stop of stops.reverse()) stop();
    };
  }, [live, row]);

  return (
    <div class="shell">
      {problem && <p class="file-problem">{problem}</p>}
      <div class="shell-screen" ref={host} />
      <footer class="shell-status">
        <span class="shell-state">Output of a command, read-only</span>
      </footer>
      {link.value !== null && <LinkDialog address={link.value} onClose={() => (link.value = null)} />}
    </div>
  );
}

function commandRow(live: LiveSession, key: string): ToolRow | undefined {
  const row = live.state.value.rows.find((one) => one.key === key);
  return row?.kind === "tool" ? row : undefined;
}
