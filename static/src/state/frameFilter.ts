// Filter and text of raw frames for the Events tab. Pure, apart from a cache.

import { isEvent } from "../wire/frame";
import type { LoggedFrame } from "../wire/frameLog";

/** Selection of frames. */
export interface FrameFilter {
  text: string;
  way: "both" | LoggedFrame["way"];
  /** Shows deltas, which come by the thousand. */
  deltas: boolean;
}

export const DEFAULT_FILTER: FrameFilter = { text: "", way: "both", deltas: false };

/** Returns the family of a frame and its kind. */
export function kindOf({ frame }: LoggedFrame): { family: "action" | "observation" | "delta" | "status" | "error" | "request"; name: string } {
  if ("seq" in frame && "observation" in frame) return { family: "observation", name: String(frame.observation) };
  if ("seq" in frame && "action" in frame) return { family: "action", name: String(frame.action) };
  if ("delta" in frame) return { family: "delta", name: frame.delta };
  if ("status" in frame) return { family: "status", name: frame.status };
  if ("error" in frame) return { family: "error", name: frame.error.code };
  return { family: "request", name: "action" in frame ? String(frame.action) : "?" };
}

/** Frames of a log that match a filter. After growth of the log, only new frames are checked. */
export class FilteredFrames {
  private log: readonly LoggedFrame[] = [];
  private filter = DEFAULT_FILTER;
  private checked = 0;
  private matched: LoggedFrame[] = [];

  of(log: readonly LoggedFrame[], filter: FrameFilter): readonly LoggedFrame[] {
    if (log !== this.log || filter !== this.filter) Object.assign(this, { log, filter, checked: 0, matched: [] });
    const query = filter.text.trim().toLowerCase();
    for (; this.checked < log.length; this.checked += 1) {
      const entry = log[this.checked]!;
      if (matchesFilter(entry, filter, query)) this.matched.push(entry);
    }
    return this.matched;
  }
}

function matchesFilter(entry: LoggedFrame, { way, deltas }: FrameFilter, query: string): boolean {
  if (way !== "both" && entry.way !== way) return false;
  if (!deltas && "delta" in entry.frame && !isEvent(entry.frame)) return false;
  return !query || textOf(entry).includes(query);
}

/** Search text of each frame. Every typed letter searches all of them. */
const texts = new WeakMap<LoggedFrame, string>();

function textOf(entry: LoggedFrame): string {
  const text = texts.get(entry) ?? JSON.stringify(entry.frame).toLowerCase();
  texts.set(entry, text);
  return text;
}

/**
 * Returns the time of a frame in milliseconds. For an event: from server time to arrival. For a
 * reply: since the request. Returns `null` for a negative time, because two clocks may differ.
 */
export function latency(entry: LoggedFrame, entries: readonly LoggedFrame[]): number | null {
  const { frame, at } = entry;
  if (entry.way === "out" || entry.replayed) return null;
  if ("at" in frame) return atLeastZero(at - Date.parse(frame.at));
  const id = "id" in frame && !("seq" in frame && "at" in frame) ? frame.id : undefined;
  const sent = id === undefined ? undefined : entries.findLast((one) => one.way === "out" && "id" in one.frame && one.frame.id === id);
  return sent ? atLeastZero(at - sent.at) : null;
}

function atLeastZero(ms: number): number | null {
  return ms >= 0 ? ms : null;
}

/** Returns a frame's content as one line. */
export function summary({ frame }: LoggedFrame): string {
  if ("message" in frame && typeof frame.message === "string") return frame.message;
  if ("delta" in frame) return frame.delta === "retry" ? frame.why : frame.content;
  if ("error" in frame) return frame.error.message;
  if ("observation" in frame) return frame.content || JSON.stringify(frame.extras);
  if ("args" in frame) return JSON.stringify(frame.args);
  const { status: _, ...rest } = frame as { status?: string };
  return Object.keys(rest).length === 0 ? "" : JSON.stringify(rest);
}
