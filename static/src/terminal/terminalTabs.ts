// Tabs of the Terminal view, per session: terminals, and commands of the agent as read-only views.

import { signal } from "@preact/signals";
import { storeText } from "../storage";
import { RestError } from "../wire/rest";
import { closeTerminal, listTerminals, renameTerminal, TERMINALS_LIMIT } from "./terminalsRest";

export type TerminalTabId = { kind: "shell"; name: string } | { kind: "run"; row: string };

/** Name of the first terminal. */
const MAIN = "main";
const NAME = /^(?=.*[A-Za-z0-9_-])[A-Za-z0-9._-]{1,32}$/;

/** REST calls of the tabs. */
export interface TerminalsAccess {
  listTerminals: typeof listTerminals;
  renameTerminal: typeof renameTerminal;
  closeTerminal: typeof closeTerminal;
}

export class TerminalTabs {
  /** Names in the order of the tabs. */
  readonly names = signal<readonly string[]>([MAIN]);
  /** Keys of the commands that are open as views. */
  readonly runs = signal<readonly string[]>([]);
  readonly shown = signal<TerminalTabId>({ kind: "shell", name: MAIN });
  readonly problem = signal("");
  private readonly storageKey: string;

  constructor(
    private readonly session: string,
    private readonly access: TerminalsAccess = { listTerminals, renameTerminal, closeTerminal },
  ) {
    this.storageKey = `greenroom.terminal.${session}`;
    const name = sessionStorage.getItem(this.storageKey);
    if (name && NAME.test(name)) {
      this.names.value = name === MAIN ? [MAIN] : [MAIN, name];
      this.shown.value = { kind: "shell", name };
    }
  }

  get isFull(): boolean {
    return this.names.value.length >= TERMINALS_LIMIT;
  }

  show(tab: TerminalTabId): void {
    this.shown.value = tab;
    if (tab.kind === "shell") storeText(this.storageKey, tab.name, sessionStorage);
  }

  /** Adds the terminals that the server has, for example those of another browser. */
  async refresh(): Promise<void> {
    try {
      const { items } = await this.access.listTerminals(this.session);
      this.take(items.map(({ name }) => name));
    } catch {
      // A paused or unreachable session keeps its tabs. The terminals themselves report the state.
    }
  }

  /** Opens a further terminal under a free name. */
  add(): void {
    if (this.isFull) return;
    let number = 2;
    while (this.names.peek().includes(`shell-${number}`)) number += 1;
    const name = `shell-${number}`;
    this.names.value = [...this.names.peek(), name];
    this.show({ kind: "shell", name });
  }

  /** Renames a terminal. Returns the reason against the name, or "". */
  async rename(name: string, to: string): Promise<string> {
    if (!NAME.test(to)) return "Use 1 to 32 letters, digits, `.`, `_` and `-`.";
    if (to === name) return "";
    if (this.names.peek().includes(to)) return `Another terminal is named \`${to}\`.`;
    try {
      await this.access.renameTerminal(this.session, name, to);
    } catch (error) {
      return (error as Error).message;
    }
    this.renamed(name, to);
    return "";
  }

  /** Applies a new name, also one that another client gave. */
  renamed(name: string, to: string): void {
    this.names.value = [...new Set(this.names.peek().map((one) => (one === name ? to : one)))];
    const shown = this.shown.peek();
    if (shown.kind === "shell" && shown.name === name) this.show({ kind: "shell", name: to });
  }

  /** Closes a terminal with its processes. A terminal that has ended only loses its tab. */
  async close(name: string): Promise<void> {
    this.problem.value = "";
    try {
      await this.access.closeTerminal(this.session, name);
    } catch (error) {
      if (!(error instanceof RestError) || !error.isNotFound) {
        this.problem.value = (error as Error).message;
        return;
      }
    }
    this.remove(name);
  }

  openRun(row: string): void {
    if (!this.runs.peek().includes(row)) this.runs.value = [...this.runs.peek(), row];
    this.show({ kind: "run", row });
  }

  closeRun(row: string): void {
    this.runs.value = this.runs.peek().filter((one) => one !== row);
    this.show({ kind: "shell", name: this.names.peek()[0] ?? MAIN });
  }

  private take(names: readonly string[]): void {
    const known = this.names.peek();
    this.names.value = [...known, ...names.filter((name) => !known.includes(name))].slice(0, TERMINALS_LIMIT);
  }

  private remove(name: string): void {
    const before = this.names.peek();
    const left = before.filter((one) => one !== name);
    this.names.value = left.length > 0 ? left : [MAIN];
    const shown = this.shown.peek();
    if (shown.kind !== "shell" || shown.name !== name) return;
    this.show({ kind: "shell", name: left[Math.max(0, before.indexOf(name) - 1)] ?? MAIN });
  }
}

const allTabs = new Map<string, TerminalTabs>();

/** Returns the tabs of a session. */
export function terminalTabsOf(session: string): TerminalTabs {
  const known = allTabs.get(session) ?? new TerminalTabs(session);
  allTabs.set(session, known);
  return known;
}
