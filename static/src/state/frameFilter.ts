// Raw frames in words for the Events tab. Pure, but that it remembers what it has looked at.

import { isEvent } from "../wire/frame";
import type { Entry } from "../wire/log";

/** Which frames are shown. */
export interface Filter {
  text: string;
  way: "both" | Entry["way"];
  /** Pieces of growing items come by the thousand and say little. */
  deltas: boolean;
}

export const everything: Filter = { text: "", way: "both", deltas: false };

/** What kind of frame it is, and the one word that says which. */
export function kindOf({ frame }: Entry): { family: "action" | "observation" | "delta" | "status" | "error" | "wish"; name: string } {
  if ("seq" in frame && "observation" in frame) return { family: "observation", name: String(frame.observation) };
  if ("seq" in frame && "action" in frame) return { family: "action", name: String(frame.action) };
  if ("delta" in frame) return { family: "delta", name: frame.delta };
  if ("status" in frame) return { family: "status", name: frame.status };
  if ("error" in frame) return { family: "error", name: frame.error.code };
  return { family: "wish", name: "action" in frame ? String(frame.action) : "?" };
}

/** What of a log passes a filter. Of a log that has only grown since, and the same filter, no more is looked at than what is new. */
export class Sieve {
  private log: readonly Entry[] = [];
  private filter = everything;
  private looked = 0;
  private passed: Entry[] = [];

  of(log: readonly Entry[], filter: Filter): readonly Entry[] {
    if (log !== this.log || filter !== this.filter) Object.assign(this, { log, filter, looked: 0, passed: [] });
    const wanted = filter.text.trim().toLowerCase();
    for (; this.looked < log.length; this.looked += 1) {
      const entry = log[this.looked]!;
      if (passes(entry, filter, wanted)) this.passed.push(entry);
    }
    return this.passed;
  }
}

function passes(entry: Entry, { way, deltas }: Filter, wanted: string): boolean {
  if (way !== "both" && entry.way !== way) return false;
  if (!deltas && "delta" in entry.frame && !isEvent(entry.frame)) return false;
  return !wanted || textOf(entry).includes(wanted);
}

/** What the frames say: each letter that is typed asks all of them. */
const texts = new WeakMap<Entry, string>();

function textOf(entry: Entry): string {
  const text = texts.get(entry) ?? JSON.stringify(entry.frame).toLowerCase();
  texts.set(entry, text);
  return text;
}

/**
 * How long a frame took, in milliseconds: an event from its time of day at the server to its arrival here, an answer since
 * the wish was sent. Clocks of two machines may differ; what would be negative is not told.
 */
export function latency(entry: Entry, entries: readonly Entry[]): number | null {
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

/** One line that tells what is in it. */
export function summary({ frame }: Entry): string {
  if ("message" in frame && typeof frame.message === "string") return frame.message;
  if ("delta" in frame) return frame.content;
  if ("error" in frame) return frame.error.message;
  if ("observation" in frame) return frame.content || JSON.stringify(frame.extras);
  if ("args" in frame) return JSON.stringify(frame.args);
  const { status: _, ...rest } = frame as { status?: string };
  return Object.keys(rest).length === 0 ? "" : JSON.stringify(rest);
}
