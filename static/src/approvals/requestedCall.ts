// Tool call of an approval request: text to show, text to edit, and the changed arguments.

import type { ApprovalRequest } from "../state/rows";

/** Call that waits for a decision, as far as the page can read it. */
export interface RequestedCall {
  /** Kind of the text: a command, an address, a file's content, or words. */
  kind: "command" | "address" | "content" | "words";
  /** Text to approve. */
  text: string;
  /** File that the call changes. */
  path?: string;
  /** Returns the arguments with a changed text. Absent if the call cannot be changed. */
  changed?: (text: string) => Record<string, unknown>;
}

/**
 * Reads the call of a request. Requests of earlier versions and of other agents have words only.
 */
export function requestedCall({ action, call, editable }: ApprovalRequest): RequestedCall {
  const { action: name, args } = (call ?? {}) as { action?: unknown; args?: Record<string, unknown> };
  const words: RequestedCall = { kind: "words", text: action };
  if (typeof name !== "string" || typeof args !== "object" || args === null) return words;
  const field = (kind: RequestedCall["kind"], key: string): RequestedCall => {
    const text = args[key];
    if (typeof text !== "string") return words;
    const path = kind === "content" && typeof args.path === "string" ? args.path : undefined;
    return { kind, text, ...(path !== undefined && { path }), ...(editable && { changed: (to) => ({ ...args, [key]: to }) }) };
  };
  switch (name) {
    case "run":
      return field("command", "command");
    case "browse":
      return field("address", "url");
    case "write":
      return field("content", "content");
    case "edit":
      return editedLines(args, words, editable === true);
    case "read":
      return typeof args.path === "string" ? { kind: "words", text: args.path } : words;
    case "tool":
      return { kind: "words", text: wordsOfTool(args) ?? action };
    default:
      return words;
  }
}

/** New lines of an edit. A deletion has none. */
function editedLines(args: Record<string, unknown>, words: RequestedCall, isEditable: boolean): RequestedCall {
  if (typeof args.path !== "string") return words;
  const lines = Array.isArray(args.lines) ? args.lines.map(String) : null;
  if (lines === null) return { ...words, path: args.path };
  const changed = (text: string) => ({ ...args, lines: text.split("\n") });
  return { kind: "content", text: lines.join("\n"), path: args.path, ...(isEditable && { changed }) };
}

/** Title of a generic call with its input. A title alone may leave out what the call does. */
function wordsOfTool({ title, name, input }: Record<string, unknown>): string | undefined {
  const heading = [title, name].find((one) => typeof one === "string" && one !== "");
  const shown = input === undefined || input === null ? "" : JSON.stringify(input, null, 2);
  return [heading, shown].filter(Boolean).join("\n") || undefined;
}
