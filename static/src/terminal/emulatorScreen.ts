// Emulator on the screen: xterm.js with its addons. Loaded only when a terminal is shown.

import { FitAddon } from "@xterm/addon-fit";
import { SearchAddon } from "@xterm/addon-search";
import { Unicode11Addon } from "@xterm/addon-unicode11";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { Terminal, type ITheme } from "@xterm/xterm";
import emulatorStyles from "@xterm/xterm/css/xterm.css";
import "./adoptedStyle";

/** Lines above the window that stay readable. */
const SCROLLBACK = 5000;
const FONT_SIZE = 13;

export interface EmulatorOptions {
  theme: ITheme;
  /** True for the output of a finished command. */
  isReadOnly: boolean;
  isScreenReader: boolean;
  /** Typed or pasted text, and answers of the emulator. */
  onInput: (input: string) => void;
  /** Input that is no text. */
  onBytes: (input: Uint8Array) => void;
  /** Asks the person before an address from the output is opened. */
  onLink: (address: string) => void;
  onFind: () => void;
  onLeave: () => void;
}

export class EmulatorScreen {
  private readonly terminal: Terminal;
  private readonly fitter = new FitAddon();
  private readonly finder = new SearchAddon();
  private answers = true;

  constructor(
    private readonly host: HTMLElement,
    private readonly options: EmulatorOptions,
  ) {
    adoptStyles();
    const open = (_: MouseEvent, address: string) => options.onLink(address);
    this.terminal = new Terminal({
      allowProposedApi: true,
      convertEol: options.isReadOnly,
      cursorBlink: false,
      disableStdin: options.isReadOnly,
      fontFamily: getComputedStyle(host).fontFamily,
      fontSize: FONT_SIZE,
      linkHandler: { activate: open },
      minimumContrastRatio: 4.5,
      rightClickSelectsWord: false,
      screenReaderMode: options.isScreenReader,
      scrollback: SCROLLBACK,
      theme: options.theme,
    });
    this.terminal.loadAddon(this.fitter);
    this.terminal.loadAddon(this.finder);
    this.terminal.loadAddon(new Unicode11Addon());
    this.terminal.unicode.activeVersion = "11";
    this.terminal.loadAddon(new WebLinksAddon(open));
    this.terminal.attachCustomKeyEventHandler((event) => this.passesKey(event));
    this.terminal.onData((input) => options.onInput(input));
    // Mouse reports of older programs may contain any byte.
    this.terminal.onBinary((input) => options.onBytes(Uint8Array.from(input, (char) => char.charCodeAt(0))));
    this.silenceQueries();
    this.terminal.open(host);
    void this.useGpu();
  }

  write(bytes: Uint8Array | string, done: () => void = () => {}): void {
    this.terminal.write(bytes, done);
  }

  clear(): void {
    this.terminal.reset();
  }

  /** Returns the size that fills the host. */
  fittingSize(): { cols: number; rows: number } | undefined {
    const size = this.fitter.proposeDimensions();
    return size && Number.isFinite(size.cols) && size.cols > 1 && size.rows > 0 ? size : undefined;
  }

  resize({ cols, rows }: { cols: number; rows: number }): void {
    if (cols !== this.terminal.cols || rows !== this.terminal.rows) this.terminal.resize(cols, rows);
  }

  setAnswering(answers: boolean): void {
    this.answers = answers;
  }

  setTheme(theme: ITheme): void {
    this.terminal.options.theme = theme;
  }

  setScreenReader(on: boolean): void {
    this.terminal.options.screenReaderMode = on;
  }

  focus(): void {
    this.terminal.focus();
  }

  /** Types a text as if it was pasted. */
  paste(text: string): void {
    this.terminal.paste(text);
  }

  get selection(): string {
    return this.terminal.getSelection();
  }

  /** True if a pasted line end does not run the line. */
  get hasBracketedPaste(): boolean {
    return this.terminal.modes.bracketedPasteMode;
  }

  get hasApplicationCursor(): boolean {
    return this.terminal.modes.applicationCursorKeysMode;
  }

  find(text: string, isBackwards: boolean): boolean {
    return isBackwards ? this.finder.findPrevious(text) : this.finder.findNext(text);
  }

  endFind(): void {
    this.finder.clearDecorations();
    this.terminal.clearSelection();
  }

  dispose(): void {
    this.terminal.dispose();
  }

  /** Returns false for keys that the page handles itself. */
  private passesKey(event: KeyboardEvent): boolean {
    if (this.options.isReadOnly) return this.scroll(event);
    if (event.type !== "keydown" || event.altKey) return true;
    // In screen reader mode the emulator lets its keys pass on to the page, where this one
    // interrupts.
    if (event.key === "Escape") event.preventDefault();
    const hasMod = event.ctrlKey && event.shiftKey && !event.metaKey;
    const key = event.key.toLowerCase();
    if (hasMod && key === "c") {
      // Without this, some browsers open their own tools.
      event.preventDefault();
      this.copy();
      return false;
    }
    if (hasMod && key === "f") {
      event.preventDefault();
      this.options.onFind();
      return false;
    }
    if (hasMod && key === "enter") {
      event.preventDefault();
      this.options.onLeave();
      return false;
    }
    // The browser pastes, without asking for the clipboard.
    return !hasMod || key !== "v";
  }

  /** Scrolls a read-only view. The page and the browser get each other key, such as Tab. */
  private scroll(event: KeyboardEvent): boolean {
    if (event.type !== "keydown" || event.ctrlKey || event.metaKey || event.altKey) return false;
    const scrolls: Record<string, () => void> = {
      ArrowUp: () => this.terminal.scrollLines(-1),
      ArrowDown: () => this.terminal.scrollLines(1),
      PageUp: () => this.terminal.scrollPages(-1),
      PageDown: () => this.terminal.scrollPages(1),
      Home: () => this.terminal.scrollToTop(),
      End: () => this.terminal.scrollToBottom(),
    };
    if (Object.hasOwn(scrolls, event.key)) scrolls[event.key]?.();
    return false;
  }

  private copy(): void {
    const text = this.selection;
    if (text === "") return;
    const copied = navigator.clipboard?.writeText(text) ?? Promise.reject(new Error("no clipboard"));
    // Insecure pages have the older command only. The emulator answers it with its selection.
    void copied.catch(() => document.execCommand("copy"));
  }

  /** Lets only one of several clients answer the queries of programs. */
  private silenceQueries(): void {
    const { parser } = this.terminal;
    const drop = () => !this.answers || this.options.isReadOnly;
    for (const id of [{ final: "c" }, { prefix: ">", final: "c" }, { prefix: "=", final: "c" }, { final: "n" }, { prefix: "?", final: "n" }]) {
      parser.registerCsiHandler(id, drop);
    }
    for (const prefix of [{}, { prefix: "?" }]) parser.registerCsiHandler({ ...prefix, intermediates: "$", final: "p" }, drop);
    parser.registerDcsHandler({ intermediates: "$", final: "q" }, drop);
    // Questions for colours. Setting them stays allowed.
    for (const code of [4, 10, 11, 12]) parser.registerOscHandler(code, (data) => data.includes("?") && drop());
    // Clipboard and title are no business of a program.
    for (const code of [0, 1, 2, 52]) parser.registerOscHandler(code, () => true);
  }

  /** Draws on the GPU if there is one. Software would be slower than elements. */
  private async useGpu(): Promise<void> {
    if (!hasGpu()) return;
    const { WebglAddon } = await import("@xterm/addon-webgl");
    if (!this.host.isConnected) return;
    try {
      const addon = new WebglAddon();
      addon.onContextLoss(() => addon.dispose());
      this.terminal.loadAddon(addon);
    } catch {
      // The renderer that draws elements stays.
    }
  }
}

/** Detects a real GPU. Some browsers draw in software and report no caveat. */
function hasGpu(): boolean {
  const probe = document.createElement("canvas").getContext("webgl2", { failIfMajorPerformanceCaveat: true });
  const names = probe?.getExtension("WEBGL_debug_renderer_info");
  if (!probe || !names) return false;
  return !/swiftshader|llvmpipe|software|basic render/i.test(String(probe.getParameter(names.UNMASKED_RENDERER_WEBGL)));
}

let isAdopted = false;

/** Adds the emulator's own styles once. */
function adoptStyles(): void {
  if (isAdopted) return;
  isAdopted = true;
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(emulatorStyles);
  document.adoptedStyleSheets.push(sheet);
}
