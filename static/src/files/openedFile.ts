// File on the screen: its content in parts, and the unsaved edit. The edit survives a reload.

import { batch, signal } from "@preact/signals";
import { draftKey } from "../state/pendingStorage";
import { storeText } from "../storage";
import { RestError } from "../wire/rest";
import { contentKind, lineEndsOf, type LineEnds } from "./fileContent";
import { HEX_PAGE } from "./hex";
import { keyOfPath, readPart, readWhole, saveText, type FileEntry, type FilePart, type WorkspacePath } from "./workspaceFiles";

/** Bytes of a text that are loaded at a time. */
export const TEXT_PART = 1024 * 1024;
/** Largest picture that is shown, in bytes. */
const PICTURE_LIMIT = 20 * 1024 * 1024;

export type FileView =
  | { kind: "loading" }
  | { kind: "failed"; text: string }
  /** Entry without a content to show. */
  | { kind: "closed"; text: string }
  | { kind: "text"; text: string; loaded: number; total: number; loading: boolean }
  | { kind: "picture"; url: string; total: number }
  | { kind: "hex"; bytes: Uint8Array; start: number; total: number };

/** Unsaved edit with the tag of the content that it began from. */
interface FileDraft {
  text: string;
  etag: string | null;
}

/** State of the edit. */
export interface FileEdit extends FileDraft {
  saving: boolean;
  problem: string;
  /** Set after the file changed meanwhile: its present tag, or `null` if it was deleted. */
  conflict: { etag: string | null } | null;
}

/** REST calls of an opened file. */
export interface FileAccess {
  readPart: typeof readPart;
  readWhole: typeof readWhole;
  saveText: typeof saveText;
}

export class OpenedFile {
  readonly view = signal<FileView>({ kind: "loading" });
  /** `null`: the file is not edited. */
  readonly edit = signal<FileEdit | null>(null);
  /** True after the file changed on the server while it was shown. */
  readonly isOutdated = signal(false);
  /** Called after each save, with the new tag. */
  onSaved: (etag: string | null) => void = () => {};
  private etag: string | null = null;
  private decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  private closing = new AbortController();
  private readonly storageKey: string;

  constructor(
    private readonly session: string,
    readonly entry: FileEntry,
    private readonly access: FileAccess = { readPart, readWhole, saveText },
  ) {
    this.storageKey = `${draftKey(session)}.file.${keyOfPath(entry)}`;
    void this.load();
  }

  close(): void {
    this.closing.abort();
    const view = this.view.peek();
    if (view.kind === "picture") URL.revokeObjectURL(view.url);
  }

  /** Line ends of the loaded text. */
  get lineEnds(): LineEnds {
    const view = this.view.value;
    return view.kind === "text" ? lineEndsOf(view.text) : "\n";
  }

  /**
   * Reports if the whole file is a text that a text field can hold. A replacement character may
   * stand for a byte that is not UTF-8, which saving would lose.
   */
  get isEditable(): boolean {
    const view = this.view.value;
    return view.kind === "text" && view.loaded === view.total && view.total <= TEXT_PART && this.lineEnds !== "mixed" && !view.text.includes("\ufffd");
  }

  /** Keeps the unsaved edit for the new path of the file. */
  movedTo(to: WorkspacePath): void {
    const draft = localStorage.getItem(this.storageKey);
    if (draft) storeText(`${draftKey(this.session)}.file.${keyOfPath(to)}`, draft);
    storeText(this.storageKey, "");
  }

  /** Reads the file anew. Keeps an unsaved edit. */
  async load(): Promise<void> {
    this.close();
    this.closing = new AbortController();
    const { signal: stop } = this.closing;
    this.isOutdated.value = false;
    if (this.view.peek().kind === "failed") this.view.value = { kind: "loading" };
    if (this.entry.kind === "link") return this.show({ kind: "closed", text: "Links are not followed." });
    if (this.entry.kind !== "file") return this.show({ kind: "closed", text: "Special files have no content to show." });
    try {
      const part = await this.access.readPart(this.session, this.entry, { from: 0, length: HEX_PAGE, signal: stop });
      if (stop.aborted) return;
      this.etag = part.etag;
      await this.showPart(part, stop);
      if (!stop.aborted) this.restoreDraft();
    } catch (error) {
      if (!stop.aborted) this.show({ kind: "failed", text: (error as Error).message });
    }
  }

  /** Loads the next part of a long text. */
  async more(): Promise<void> {
    const view = this.view.peek();
    if (view.kind !== "text" || view.loading || view.loaded >= view.total) return;
    const { signal: stop } = this.closing;
    this.show({ ...view, loading: true });
    try {
      const part = await this.read(view.loaded, TEXT_PART, stop);
      if (!stop.aborted) this.show(this.withPart(view, part));
    } catch (error) {
      if (stop.aborted) return;
      if (isChanged(error)) this.isOutdated.value = true;
      this.show({ ...view, loading: false });
    }
  }

  /** Shows another page of the hex view. */
  async turnTo(start: number): Promise<void> {
    const { signal: stop } = this.closing;
    try {
      const part = await this.access.readPart(this.session, this.entry, { from: start, length: HEX_PAGE, signal: stop });
      if (!stop.aborted) this.show({ kind: "hex", bytes: part.bytes, start, total: part.total });
    } catch (error) {
      if (!stop.aborted) this.show({ kind: "failed", text: (error as Error).message });
    }
  }

  /** Compares the listed tag with the shown one. An unedited file is read anew. */
  listed(etag: string | null): void {
    if (etag === null || this.etag === null || etag === this.etag) return;
    if (this.edit.peek()) this.isOutdated.value = true;
    else void this.load();
  }

  startEdit(): void {
    const view = this.view.peek();
    // A text field knows only this line end. Saving restores the other one.
    if (view.kind === "text") this.edit.value = { ...newEdit, text: view.text.replaceAll("\r\n", "\n"), etag: this.etag };
  }

  type(text: string): void {
    const edit = this.edit.peek();
    if (!edit) return;
    this.edit.value = { ...edit, text };
    storeText(this.storageKey, JSON.stringify({ text, etag: edit.etag } satisfies FileDraft));
  }

  /** Discards the edit. */
  cancelEdit(): void {
    storeText(this.storageKey, "");
    this.edit.value = null;
    if (this.isOutdated.peek()) void this.load();
  }

  /** Saves the edit, unless the file changed meanwhile. */
  async save(): Promise<void> {
    const edit = this.edit.peek();
    if (!edit || edit.saving) return;
    this.edit.value = { ...edit, saving: true, problem: "" };
    const text = this.lineEnds === "\r\n" ? edit.text.replaceAll("\n", "\r\n") : edit.text;
    try {
      const etag = await this.access.saveText(this.session, this.entry, text, edit.etag);
      this.saved(text, edit, etag);
    } catch (error) {
      const conflict = isChanged(error) ? { etag: await this.presentTag() } : null;
      const latest = this.edit.peek() ?? edit;
      this.edit.value = { ...latest, saving: false, conflict, problem: conflict ? "" : (error as Error).message };
    }
  }

  /** Answers a conflict: the edit replaces the present content. */
  async overwrite(): Promise<void> {
    const edit = this.edit.peek();
    if (!edit?.conflict) return;
    this.edit.value = { ...edit, etag: edit.conflict.etag, conflict: null };
    await this.save();
  }

  /** Answers a conflict: the edit is discarded. */
  async loadTheirs(): Promise<void> {
    storeText(this.storageKey, "");
    this.edit.value = null;
    await this.load();
  }

  /** Answers a conflict: the edit goes on. Saving asks again. */
  keepEditing(): void {
    const edit = this.edit.peek();
    if (edit) this.edit.value = { ...edit, conflict: null };
  }

  private saved(text: string, sent: FileEdit, etag: string | null): void {
    const size = new TextEncoder().encode(text).length;
    this.etag = etag;
    this.onSaved(etag);
    batch(() => {
      this.isOutdated.value = false;
      this.view.value = { kind: "text", text, loaded: size, total: size, loading: false };
      const latest = this.edit.peek();
      if (latest && latest.text !== sent.text) {
        // Typed while the file was being saved.
        this.edit.value = { ...latest, etag, saving: false, conflict: null, problem: "" };
        this.type(latest.text);
        return;
      }
      storeText(this.storageKey, "");
      this.edit.value = null;
    });
    // Without a tag in the answer, the next save needs one.
    if (etag === null) void this.load();
  }

  private async showPart(part: FilePart, stop: AbortSignal): Promise<void> {
    const isWhole = part.bytes.length >= part.total;
    switch (contentKind(part.bytes, part.type, isWhole)) {
      case "blob":
        return this.show({ kind: "hex", bytes: part.bytes, start: 0, total: part.total });
      case "picture": {
        if (part.total > PICTURE_LIMIT) return this.show({ kind: "hex", bytes: part.bytes, start: 0, total: part.total });
        const blob = isWhole ? new Blob([part.bytes], { type: part.type }) : await this.access.readWhole(this.session, this.entry, stop);
        if (stop.aborted) return;
        return this.show({ kind: "picture", url: URL.createObjectURL(blob), total: part.total });
      }
      case "text": {
        this.decoder = new TextDecoder("utf-8", { ignoreBOM: true });
        const begun = this.withPart({ kind: "text", text: "", loaded: 0, total: part.total, loading: false }, part);
        if (isWhole) return this.show(begun);
        // The old text must not be edited under the new tag.
        this.show({ ...begun, loading: true });
        const rest = await this.read(begun.loaded, TEXT_PART - begun.loaded, stop);
        if (!stop.aborted) this.show(this.withPart(begun, rest));
      }
    }
  }

  private read(from: number, length: number, stop: AbortSignal): Promise<FilePart> {
    return this.access.readPart(this.session, this.entry, { from, length, etag: this.etag, signal: stop });
  }

  private withPart<V extends Extract<FileView, { kind: "text" }>>(view: V, { bytes, total }: FilePart): V {
    const loaded = view.loaded + bytes.length;
    // A part may end within a character, which the decoder keeps for the next part.
    const text = view.text + this.decoder.decode(bytes, { stream: loaded < total });
    return { ...view, text, loaded, total, loading: false };
  }

  private async presentTag(): Promise<string | null> {
    try {
      return (await this.access.readPart(this.session, this.entry, { from: 0, length: 1 })).etag;
    } catch {
      return null;
    }
  }

  private restoreDraft(): void {
    if (this.edit.peek() || !this.isEditable) return;
    const draft = storedDraft(this.storageKey);
    if (!draft) return;
    this.edit.value = { ...newEdit, ...draft, conflict: draft.etag === this.etag ? null : { etag: this.etag } };
  }

  private show(view: FileView): void {
    this.view.value = view;
  }
}

const newEdit: FileEdit = { text: "", etag: null, saving: false, problem: "", conflict: null };

const isChanged = (error: unknown) => error instanceof RestError && error.status === 412;

function storedDraft(key: string): FileDraft | null {
  try {
    const read = JSON.parse(localStorage.getItem(key) ?? "null") as FileDraft | null;
    return typeof read?.text === "string" ? { text: read.text, etag: read.etag ?? null } : null;
  } catch {
    return null;
  }
}
