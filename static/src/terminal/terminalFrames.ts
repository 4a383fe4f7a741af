// Control frames of the terminal socket, from the server.

/** Control frame. Unknown types are ignored. */
export type TerminalFrame =
  | { type: "starting" | "paused" | "resumed" | "pong" }
  | { type: "ready"; name: string; opened: boolean }
  /**
   * Size in force, the smallest of all clients. `answers`: this client answers the queries of
   * programs.
   */
  | { type: "size"; cols: number; rows: number; clients: number; answers: boolean }
  | { type: "renamed"; name: string }
  /** End of the shell. `reason`: the sandbox or the session ended with it. */
  | { type: "exit"; code?: number; signal?: string; reason?: "sandbox" | "session" }
  | { type: "error"; error: { code: string; message: string } };

const TYPES = ["starting", "paused", "resumed", "pong", "ready", "size", "renamed", "exit", "error"];

/** Parses a text frame. `null`: the frame is of no known type. */
export function parseTerminalFrame(text: string): TerminalFrame | null {
  try {
    const frame = JSON.parse(text) as { type?: unknown } | null;
    return typeof frame?.type === "string" && TYPES.includes(frame.type) ? (frame as TerminalFrame) : null;
  } catch {
    return null;
  }
}
