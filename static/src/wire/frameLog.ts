// Log of raw frames, both ways, for the Events tab.

import type { ServerFrame, ClientRequest } from "./frame";

/** Frame with its direction and time. */
export interface LoggedFrame {
  /** Number on this page, from 1. Frames before the first one count down from 0. */
  n: number;
  way: "in" | "out";
  /** Time of passing, in milliseconds since the epoch. */
  at: number;
  frame: ServerFrame | (ClientRequest & { id?: string });
  /** Part of a replay, so its latency is meaningless. */
  replayed: boolean;
}

/** Bound: 20,000 frames. When full: the oldest are dropped. Durable frames can be fetched again. */
const MAX_FRAMES = 20_000;

export class FrameLog {
  private frames: LoggedFrame[] = [];
  private count = 0;

  /** Newest frames, oldest first. The array is the log's own and grows. */
  get entries(): readonly LoggedFrame[] {
    return this.frames;
  }

  add(way: LoggedFrame["way"], frame: LoggedFrame["frame"], at: number, replayed: boolean): void {
    this.frames.push({ n: ++this.count, way, at, frame, replayed });
    if (this.frames.length > 1.25 * MAX_FRAMES) this.frames = this.frames.slice(-MAX_FRAMES);
  }

  /**
   * Adds frames before the first one, as far as there is room. Existing entries keep their
   * identity.
   */
  prepend(frames: readonly LoggedFrame["frame"][]): void {
    const at = Date.now();
    const first = (this.frames[0]?.n ?? this.count + 1) - frames.length;
    const before = frames.map((frame, index): LoggedFrame => ({ n: first + index, way: "in", at, frame, replayed: true }));
    this.frames = [...before, ...this.frames].slice(-MAX_FRAMES);
  }

  clear(): void {
    this.frames = [];
    this.count = 0;
  }
}

/** Formats frames as JSON Lines. */
export function toJsonLines(entries: readonly LoggedFrame[]): string {
  return entries.map(({ way, at, frame }) => `${JSON.stringify({ way, at: new Date(at).toISOString(), frame })}\n`).join("");
}
