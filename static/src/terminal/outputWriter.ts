// Growing output in an emulator: writes only what is new.

/** Emulator as the writer uses it. */
interface WritableScreen {
  write(text: string): void;
  clear(): void;
}

export class OutputWriter {
  private shown = "";

  constructor(private readonly screen: WritableScreen) {}

  /** Shows a text. A text that does not continue the former one replaces it. */
  show(text: string): void {
    if (text === this.shown) return;
    if (text.startsWith(this.shown)) this.screen.write(text.slice(this.shown.length));
    else {
      this.screen.clear();
      this.screen.write(text);
    }
    this.shown = text;
  }
}
