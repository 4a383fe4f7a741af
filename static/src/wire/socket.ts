// The session socket: connects, reconnects for ever from the cursor, and hands frames on in batches.

import { isEvent, type ServerFrame, type Wish } from "./frame";

const FIRST_RETRY_MS = 250;
const LAST_RETRY_MS = 10_000;
/** A connection that is not there by then is begun anew. */
const OPEN_WITHIN_MS = 10_000;
/** One that has just begun is waited for, also where there is a reason to hurry. */
const HURRY_AFTER_MS = 2000;
const PING_EVERY_MS = 20_000;
/** Where nothing comes for so long after a ping the socket is dead: the network went away without a word. */
const PONG_WITHIN_MS = 10_000;
/** Or one long frame is still on its way over a slow line. So it is waited for longer each time, and at most this long. */
const LAST_PONG_WITHIN_MS = 160_000;

/** Live frames are drawn once a screen frame. */
const LIVE_BATCH_MS = 16;
/** A replay is drawn in large steps: what lies above the window of the chat need not be drawn at all. */
const REPLAY_BATCH_MS = 100;

/** Why the socket will not come back by itself. */
export type Refusal =
  | "signed_out"
  | "no_such_session"
  /** Another version has written it: its journal can be read, and nobody goes on with it before the server is another one. */
  | "unreadable";

/**
 * The error that says so. On this socket it stands for nothing else, also where it answers a wish: where something else was told first
 * it is not said otherwise. What REST answers with it may be about what was asked there alone.
 */
export const UNREADABLE = "conflict";

/** The newest event that the screen holds: its seq (0: there is none), and when it was made, as that event says it. */
export interface Cursor {
  seq: number;
  at: string;
}

/** A way to a session: the socket, or a recording. */
export interface Line {
  /** Sends at once, or returns false where there is no connection; the caller keeps what must not get lost. */
  send(wish: Wish & { id?: string }): boolean;
  retryNow(): void;
  close(): void;
}

export interface Listener {
  cursor(): Cursor;
  opened(): void;
  received(frames: ServerFrame[]): void;
  /** Lost; the next attempt comes at `retryAt` (milliseconds since the epoch). */
  lost(retryAt: number): void;
  refused(why: Refusal): void;
  /** The server has less than the cursor says, or something else in its place. All that is held is let go: the cursor is 0 then. */
  setBack(): void;
  /** The handshake failed, which a browser does not explain: find out whether it makes sense to go on. */
  diagnose(): Promise<Refusal | null>;
}

export class SessionSocket implements Line {
  private socket: WebSocket | null = null;
  private buffer: ServerFrame[] = [];
  private attempts = 0;
  private begunAt = 0;
  /** The cursor with which this connection began. */
  private from: Cursor = { seq: 0, at: "" };
  private openTimer = 0;
  private retryTimer = 0;
  private flushTimer = 0;
  private pingTimer = 0;
  /** Runs from a ping until anything comes. */
  private pongTimer = 0;
  /** How many connections in a row were given up because nothing came. */
  private silences = 0;
  /** What lay before the ping that is waited for, in bytes: it leaves after that. */
  private unsent = 0;
  private closed = false;
  private replaying = true;
  private unreadable = false;

  /** `before` is waited for, whatever becomes of it and whoever hurries: it moves the cursor. */
  constructor(
    private readonly session: string,
    private readonly listener: Listener,
    before?: Promise<void>,
  ) {
    if (before) void before.catch(() => {}).then(() => this.begin());
    else this.begin();
  }

  send(wish: Wish & { id?: string }): boolean {
    if (!this.isOpen) return false;
    this.socket?.send(JSON.stringify(wish));
    return true;
  }

  retryNow(): void {
    if (!this.isOpen) this.connect();
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.retryTimer);
    clearTimeout(this.flushTimer);
    clearInterval(this.pingTimer);
    removeEventListener("online", this.hurry);
    document.removeEventListener("visibilitychange", this.hurry);
    this.drop();
  }

  private get isOpen(): boolean {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  private begin(): void {
    if (this.closed) return;
    addEventListener("online", this.hurry);
    document.addEventListener("visibilitychange", this.hurry);
    this.pingTimer = window.setInterval(this.beat, PING_EVERY_MS);
    this.connect();
  }

  private connect(): void {
    if (this.closed) return;
    clearTimeout(this.retryTimer);
    this.drop();
    const query = new URLSearchParams({ session: this.session });
    this.from = this.listener.cursor();
    // From one before it: what comes first tells whether the server still has that event, or another one in its place.
    if (this.from.seq > 1) query.set("after", String(this.from.seq - 1));
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/ws?${query}`);
    let opened = false;
    this.replaying = true;
    this.unreadable = false;
    this.socket = socket;
    this.begunAt = Date.now();
    this.openTimer = window.setTimeout(() => this.abandon(), OPEN_WITHIN_MS);
    socket.onopen = () => {
      opened = true;
      clearTimeout(this.openTimer);
      this.listener.opened();
    };
    socket.onmessage = (message) => this.take(String(message.data));
    socket.onclose = (event) => {
      if (this.socket !== socket) return;
      this.flush();
      this.drop();
      if (event.code === 4401) this.refuse("signed_out");
      else if (event.code === 4404) this.refuse("no_such_session");
      else if (opened) this.retry();
      else void this.diagnose();
    };
  }

  /** What it finds out counts unless there is another connection by then. */
  private async diagnose(): Promise<void> {
    const why = await this.listener.diagnose();
    if (this.socket) return;
    if (why) this.refuse(why);
    else this.retry();
  }

  private take(text: string): void {
    this.stopWaiting();
    const frame = JSON.parse(text) as ServerFrame;
    const said = !isEvent(frame) && "status" in frame ? frame : undefined;
    const isCursor = isEvent(frame) && frame.seq === this.from.seq;
    if ((said?.status === "hello" && said.last_seq < this.from.seq) || (isCursor && frame.at !== this.from.at)) {
      // Its data were put back from a backup: what it sends from here on would be taken for what the screen has already. Where it has
      // written as much again since then, the time of that event tells: it was made after the backup was put back.
      this.buffer = [];
      this.listener.setBack();
      return this.connect();
    }
    if (isCursor) return;
    if (said?.status === "hello") this.unreadable = false;
    if (!isEvent(frame) && "error" in frame) this.unreadable ||= frame.error.code === UNREADABLE;
    // Not before the replay is through: what was too long for the patience before may lie in that, and comes again each time.
    if (said?.status === "pong" && !this.replaying) this.silences = 0;
    this.buffer.push(frame);
    if (said?.status === "synced") {
      this.attempts = 0;
      this.replaying = false;
      this.flush();
    }
    // Its journal has come. Whoever stays would have it looked for again every two seconds, in vain.
    if (this.unreadable && !this.replaying) return this.leave();
    if (said?.status === "synced") return;
    // A timer instead of `requestAnimationFrame`, which stands still in a hidden tab.
    this.flushTimer ||= window.setTimeout(this.flush, this.replaying ? REPLAY_BATCH_MS : LIVE_BATCH_MS);
  }

  private flush = (): void => {
    clearTimeout(this.flushTimer);
    this.flushTimer = 0;
    if (this.buffer.length === 0) return;
    const frames = this.buffer;
    this.buffer = [];
    this.listener.received(frames);
  };

  private retry(): void {
    if (this.closed || this.socket) return;
    clearTimeout(this.retryTimer);
    const ceiling = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.attempts++);
    const delay = ceiling * (0.5 + Math.random() / 2);
    this.listener.lost(Date.now() + delay);
    this.retryTimer = window.setTimeout(() => this.connect(), delay);
  }

  private leave(): void {
    this.flush();
    this.drop();
    this.refuse("unreadable");
  }

  private refuse(why: Refusal): void {
    if (this.closed) return;
    this.listener.refused(why);
  }

  private hurry = (): void => {
    if (document.hidden) return;
    if (this.isOpen) this.beat();
    else if (!this.socket || Date.now() - this.begunAt > HURRY_AFTER_MS) this.connect();
  };

  private beat = (): void => {
    // Who is waited for already gets no more time by another one.
    if (this.pongTimer) return;
    const before = this.socket?.bufferedAmount ?? 0;
    if (!this.send({ action: "ping" })) return;
    this.unsent = before;
    this.awaitPong();
  };

  private awaitPong(): void {
    const patience = Math.min(LAST_PONG_WITHIN_MS, PONG_WITHIN_MS * 2 ** this.silences);
    this.pongTimer = window.setTimeout(this.silent, patience);
  }

  private silent = (): void => {
    const unsent = this.socket?.bufferedAmount ?? 0;
    if (unsent < this.unsent) {
      // The line takes what is sent here, if slowly. The ping went out after that, or has not yet.
      this.unsent = unsent;
      return this.awaitPong();
    }
    this.silences += 1;
    this.abandon();
  };

  private stopWaiting(): void {
    clearTimeout(this.pongTimer);
    this.pongTimer = 0;
  }

  /** Gives a dead socket up without waiting for its close, which may take minutes. */
  private abandon(): void {
    if (!this.socket) return;
    this.flush();
    this.drop();
    this.retry();
  }

  private drop(): void {
    clearTimeout(this.openTimer);
    this.stopWaiting();
    const socket = this.socket;
    this.socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }
}
