// What went over the wire: the raw frames, both ways, for whoever wants to see them.

import type { ServerFrame, Wish } from "./frame";

/** One frame as it came or went. */
export interface Entry {
  /** Counts the frames of this page, from 1; those from before the first one, down from 0. */
  n: number;
  way: "in" | "out";
  /** When it passed here, milliseconds since the epoch. */
  at: number;
  frame: ServerFrame | (Wish & { id?: string });
  /** Part of a replay: how long it took to get here says nothing. */
  replayed: boolean;
}

/** Older frames are let go beyond this; those that are durable can be fetched again. */
const KEPT = 20_000;

export class FrameLog {
  private held: Entry[] = [];
  private count = 0;

  /** The newest frames, oldest first. The array is this log's own, and grows. */
  get entries(): readonly Entry[] {
    return this.held;
  }

  add(way: Entry["way"], frame: Entry["frame"], at: number, replayed: boolean): void {
    this.held.push({ n: ++this.count, way, at, frame, replayed });
    if (this.held.length > 1.25 * KEPT) this.held = this.held.slice(-KEPT);
  }

  /** Frames from before the first one, as far as there is room. Those that are there stay the same: somebody may look at one. */
  putBefore(frames: readonly Entry["frame"][]): void {
    const at = Date.now();
    const first = (this.held[0]?.n ?? this.count + 1) - frames.length;
    const before = frames.map((frame, index): Entry => ({ n: first + index, way: "in", at, frame, replayed: true }));
    this.held = [...before, ...this.held].slice(-KEPT);
  }

  clear(): void {
    this.held = [];
    this.count = 0;
  }
}

/** The frames as they are saved: a line of JSON each. */
export function toJsonLines(entries: readonly Entry[]): string {
  return entries.map(({ way, at, frame }) => `${JSON.stringify({ way, at: new Date(at).toISOString(), frame })}\n`).join("");
}
