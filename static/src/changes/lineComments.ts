// Comments on lines of a diff. Collected in this browser until they go into the next message.

import { signal } from "@preact/signals";
import { escapeInvisible } from "../escapes";
import { keyOfPath, type WorkspacePath } from "../files/workspaceFiles";
import { newId } from "../id";
import { draftKey } from "../state/pendingStorage";
import { storeText } from "../storage";
import type { DiffSide } from "./diffRows";

/** Line of a file, before or after the change. */
export interface CommentedLine {
  file: WorkspacePath;
  side: DiffSide;
  line: number;
  /** Text of the line. */
  code: string;
}

export interface LineComment extends CommentedLine {
  id: string;
  text: string;
}

/** Longest quote of a line, in characters. */
const LONGEST_QUOTE = 300;

/** Returns a text that differs for each line. */
export const keyOfLine = ({ file, side, line }: CommentedLine): string => `${keyOfPath(file)} ${side} ${line}`;

export class LineComments {
  readonly all = signal<readonly LineComment[]>([]);
  /** Line of the open field, or the comment that is edited. */
  readonly written = signal<CommentedLine | LineComment | null>(null);
  private readonly storageKey: string;

  constructor(session: string) {
    this.storageKey = `${draftKey(session)}.comments`;
    this.all.value = parseComments(localStorage.getItem(this.storageKey));
  }

  /** Keeps the text of the open field. An empty text removes the comment. */
  save(text: string): void {
    const written = this.written.peek();
    this.written.value = null;
    if (!written) return;
    const id = "id" in written ? written.id : undefined;
    if (!text.trim()) return id === undefined ? undefined : this.remove(id);
    const comment: LineComment = { ...written, id: id ?? newId(), text: text.trim() };
    const all = this.all.peek();
    this.store(id === undefined ? [...all, comment] : all.map((one) => (one.id === id ? comment : one)));
  }

  remove(id: string): void {
    this.store(this.all.peek().filter((one) => one.id !== id));
  }

  /** Removes all comments and returns their text for a message. */
  take(): string {
    const text = this.all.peek().map(commentText).join("\n\n");
    this.store([]);
    return text;
  }

  private store(comments: readonly LineComment[]): void {
    this.all.value = comments;
    storeText(this.storageKey, comments.length > 0 ? JSON.stringify(comments) : "");
  }
}

/** Returns file, line, quote and comment. */
export function commentText({ file, side, line, code, text }: LineComment): string {
  const quote = code.length > LONGEST_QUOTE ? `${code.slice(0, LONGEST_QUOTE)}…` : code;
  return `\`${escapeInvisible(file.path)}\`, line ${line}${side === "old" ? " before the change" : ""}:\n> ${quote}\n\n${text}`;
}

function parseComments(stored: string | null): LineComment[] {
  try {
    return (JSON.parse(stored ?? "[]") as LineComment[]).filter(isComment);
  } catch {
    return [];
  }
}

function isComment({ id, file, side, line, code, text }: LineComment): boolean {
  const texts: unknown[] = [id, file.path, code, text];
  return texts.every((one) => typeof one === "string") && (side === "old" || side === "new") && typeof line === "number";
}
