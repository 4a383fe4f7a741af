// One terminal on the screen: an emulator, its connection, and the keys of the touch row.

import { effect, signal } from "@preact/signals";
import { isTouchScreen } from "../dom/focusField";
import { theme } from "../theme";
import type { EmulatorScreen } from "./emulatorScreen";
import { rowKeyInput, withCtrl, type RowKey } from "./touchKeys";
import type { EmulatorFile } from "./loadEmulator";
import { screenReader } from "./screenReader";
import { TerminalConnection } from "./terminalConnection";
import { terminalTheme } from "./terminalTheme";
import { typedCommand } from "./typedCommand";

/** Size before the emulator has measured its font. */
const FIRST_SIZE = { cols: 80, rows: 24 };
/** Time between two looks at a new shell's prompt, and their number. */
const PROMPT_EVERY_MS = 100;
const PROMPT_LOOKS = 15;

const encoder = new TextEncoder();

interface ShellViewOptions {
  session: string;
  name: string;
  host: HTMLElement;
  onRenamed: (name: string) => void;
  onEnded: () => void;
  onLeave: () => void;
}

export class ShellView {
  readonly connection: TerminalConnection;
  readonly screen: EmulatorScreen;
  /** Address from the output that waits for the person's answer. */
  readonly link = signal<string | null>(null);
  readonly isFinding = signal(false);
  /** True while the next key of the touch row or keyboard counts with Ctrl. */
  readonly ctrl = signal(false);
  readonly problem = signal("");
  private readonly stops: (() => void)[] = [];
  private promptTimer: ReturnType<typeof setTimeout> | undefined;

  constructor({ EmulatorScreen }: EmulatorFile, { session, name, host, onRenamed, onEnded, onLeave }: ShellViewOptions) {
    this.screen = new EmulatorScreen(host, {
      theme: terminalTheme(host),
      isReadOnly: false,
      isScreenReader: screenReader.peek(),
      onInput: (input) => this.input(input),
      onBytes: (input) => this.connection.send(input),
      onLink: (address) => (this.link.value = address),
      onFind: () => (this.isFinding.value = true),
      onLeave,
    });
    const size = this.screen.fittingSize() ?? FIRST_SIZE;
    this.screen.resize(size);
    this.connection = new TerminalConnection(session, name, size, this.screen, { renamed: onRenamed, ended: onEnded });
    this.stops.push(
      followTheme(this.screen, host),
      effect(() => this.screen.setScreenReader(screenReader.value)),
      effect(() => this.followCommand(session)),
      watchSize(host, () => this.fit()),
    );
    if (mayTakeFocus()) this.screen.focus();
  }

  /** Opens a new shell, or connects at once. */
  restart(): void {
    this.connection.retryNow();
    this.screen.focus();
  }

  /** Sends a key of the touch row. */
  press(key: RowKey): void {
    if (key === "Ctrl") {
      this.ctrl.value = !this.ctrl.peek();
      return;
    }
    const input = rowKeyInput(key, { ctrl: this.ctrl.peek(), applicationCursor: this.screen.hasApplicationCursor });
    this.ctrl.value = false;
    this.connection.send(encoder.encode(input));
  }

  close(): void {
    clearTimeout(this.promptTimer);
    for (const stop of this.stops) stop();
    this.connection.close();
    this.screen.dispose();
  }

  private input(typed: string): void {
    const changed = this.ctrl.peek() ? withCtrl(typed) : null;
    this.ctrl.value = false;
    this.connection.send(encoder.encode(changed ?? typed));
  }

  private fit(): void {
    const size = this.screen.fittingSize();
    if (!size) return;
    const inForce = this.connection.size.peek();
    this.connection.resize(size);
    // Alone on the terminal, the emulator need not wait for the server.
    if ((inForce?.clients ?? 1) <= 1) this.screen.resize(size);
  }

  /** Types a waiting command once the terminal is there. */
  private followCommand(session: string): void {
    const command = typedCommand.value;
    if (command?.session !== session || this.connection.phase.value.kind !== "live") return;
    clearTimeout(this.promptTimer);
    this.typeAtPrompt(command.text, PROMPT_LOOKS);
  }

  /** A shell that brackets pasted text has shown its prompt. Other shells get some time. */
  private typeAtPrompt(text: string, looks: number): void {
    if (!this.screen.hasBracketedPaste && looks > 0) {
      this.promptTimer = setTimeout(() => this.typeAtPrompt(text, looks - 1), PROMPT_EVERY_MS);
      return;
    }
    typedCommand.value = null;
    if (text.includes("\n") && !this.screen.hasBracketedPaste) this.problem.value = "This shell would run each line. Copy it instead.";
    else this.screen.paste(text);
    this.screen.focus();
  }
}

/**
 * Reports if a new terminal takes the focus. It would trap arrow keys that walk through the tabs,
 * and open the keyboard of a touch screen.
 */
function mayTakeFocus(): boolean {
  return !isTouchScreen() && document.activeElement?.matches("[role=tab]:focus-visible") !== true;
}

/** Applies the page's colours, also after a change. Returns a function that ends this. */
export function followTheme(screen: EmulatorScreen, host: HTMLElement): () => void {
  const apply = () => screen.setTheme(terminalTheme(host));
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", apply);
  const stop = effect(() => {
    void theme.value;
    // The attribute of the page is set by another effect.
    queueMicrotask(apply);
  });
  return () => {
    system.removeEventListener("change", apply);
    stop();
  };
}

/** Reports each new size of an element. Returns a function that ends this. */
export function watchSize(host: HTMLElement, onSize: () => void): () => void {
  const watched = new ResizeObserver(onSize);
  watched.observe(host);
  return () => watched.disconnect();
}
