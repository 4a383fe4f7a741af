// Playback of a recording. Uses the state of a live session, fed from a file, forwards and
// backwards.

import { signal } from "@preact/signals";
import type { ServerFrame } from "../wire/frame";
import type { SessionTransport, TransportListener } from "../wire/socket";
import { LiveSession } from "./liveSession";

/** Upper bound of a pause during playback. */
const MAX_DELAY_MS = 1500;

export class RecordingPlayer {
  /** Number of frames on the screen. */
  readonly at = signal(0);
  readonly playing = signal(false);
  readonly speed = signal(1);
  readonly live: LiveSession;
  private timer = 0;
  private listener: TransportListener | null = null;

  /** Shows the whole recording at first. */
  constructor(private readonly frames: readonly ServerFrame[]) {
    this.live = new LiveSession(idOf(frames), (listener) => this.line(listener));
    this.seek(frames.length);
  }

  get length(): number {
    return this.frames.length;
  }

  seek(to: number): void {
    const next = Math.max(0, Math.min(this.frames.length, to));
    if (next < this.at.peek() || this.at.peek() === 0) {
      this.live.rewind();
      this.show(0, next);
    } else {
      this.show(this.at.peek(), next);
    }
    this.at.value = next;
  }

  play(): void {
    if (this.at.peek() >= this.frames.length) this.seek(0);
    this.playing.value = true;
    this.schedule();
  }

  pause(): void {
    this.playing.value = false;
    clearTimeout(this.timer);
  }

  close(): void {
    this.pause();
    this.live.close();
  }

  private schedule(): void {
    clearTimeout(this.timer);
    if (!this.playing.peek()) return;
    const next = this.at.peek();
    if (next >= this.frames.length) return this.pause();
    const wait = delayBefore(this.frames, next) / this.speed.peek();
    this.timer = window.setTimeout(() => {
      this.seek(next + 1);
      this.schedule();
    }, wait);
  }

  private show(from: number, to: number): void {
    if (from < to) this.listener?.received(this.frames.slice(from, to));
  }

  private line(listener: TransportListener): SessionTransport {
    this.listener = listener;
    return { send: () => false, retryNow() {}, close() {} };
  }
}

function idOf(frames: readonly ServerFrame[]): string {
  for (const frame of frames) if ("status" in frame && frame.status === "hello" && frame.session) return frame.session.id;
  return "recording";
}

/** Returns the delay before frame `next`, from the times of the events around it. */
function delayBefore(frames: readonly ServerFrame[], next: number): number {
  const frame = frames[next];
  if (!frame || !("at" in frame)) return 16;
  const before = frames.slice(Math.max(0, next - 200), next).findLast((earlier) => "at" in earlier);
  if (!before || !("at" in before)) return 0;
  return Math.max(0, Math.min(MAX_DELAY_MS, Date.parse(frame.at) - Date.parse(before.at)));
}
