// Session socket: connects, reconnects for ever from the cursor, and delivers frames in batches.

import { serverAddress } from "../basePath";
import { socketProtocols } from "./secret";
import { isEvent, type ServerFrame, type ClientRequest } from "./frame";

const FIRST_RETRY_MS = 250;
const MAX_RETRY_MS = 10_000;
/** Limit for opening a connection. */
const OPEN_WITHIN_MS = 10_000;
/** Grace period of a new connection before an early retry replaces it. */
const RETRY_EARLY_AFTER_MS = 2000;
const PING_EVERY_MS = 20_000;
/** Limit of silence after a ping. The network may have disappeared without an error. */
const PONG_WITHIN_MS = 10_000;
/**
 * Upper bound of that limit. The limit doubles each time, because one long frame may still arrive
 * on a slow line.
 */
const MAX_PONG_WITHIN_MS = 160_000;

/** Batch interval of live frames: one screen frame. */
const LIVE_BATCH_MS = 16;
/** Batch interval of a replay. Rows above the chat's window are never drawn. */
const REPLAY_BATCH_MS = 100;

/** Reason for the end of all reconnects. */
export type SocketEndReason =
  | "signed_out"
  | "no_such_session"
  /**
   * Written by another version. The journal is readable; the session continues only on a suitable
   * server.
   */
  | "unreadable";

/**
 * Error code of an unreadable session. On this socket the code has no other meaning, also in a
 * reply. In a REST answer, the code may concern that call alone.
 */
export const UNREADABLE_CODE = "conflict";

/** Newest event on the screen: its seq (0: none) and its own time. */
export interface EventCursor {
  seq: number;
  at: string;
}

/** Transport of a session: socket or recording. */
export interface SessionTransport {
  /** Sends at once. Returns false without a connection; the caller keeps the request. */
  send(request: ClientRequest & { id?: string }): boolean;
  retryNow(): void;
  close(): void;
}

export interface TransportListener {
  cursor(): EventCursor;
  opened(): void;
  received(frames: ServerFrame[]): void;
  /** Reports a lost connection. `retryAt`: next attempt, in milliseconds since the epoch. */
  lost(retryAt: number): void;
  ended(why: SocketEndReason): void;
  /**
   * Reports that the server's data is older than the cursor or differs. The listener discards its
   * state, so the cursor becomes 0.
   */
  rolledBack(): void;
  /** Finds the reason of a failed handshake, which browsers do not report. */
  diagnose(): Promise<SocketEndReason | null>;
}

export class SessionSocket implements SessionTransport {
  private socket: WebSocket | null = null;
  private buffer: ServerFrame[] = [];
  private attempts = 0;
  private connectStartedAt = 0;
  /** Cursor at the start of this connection. */
  private startCursor: EventCursor = { seq: 0, at: "" };
  private openTimer = 0;
  private retryTimer = 0;
  private flushTimer = 0;
  private pingTimer = 0;
  /** Runs from a ping until any frame arrives. */
  private pongTimer = 0;
  /** Consecutive connections abandoned for silence. */
  private missedPongs = 0;
  /** Bytes queued before the awaited ping. The ping leaves after them. */
  private unsentBytes = 0;
  private closed = false;
  private replaying = true;
  private unreadable = false;

  /** `before` moves the cursor, so connecting waits for it in any case. */
  constructor(
    private readonly session: string,
    private readonly listener: TransportListener,
    before?: Promise<void>,
  ) {
    if (before) void before.catch(() => {}).then(() => this.start());
    else this.start();
  }

  send(request: ClientRequest & { id?: string }): boolean {
    if (!this.isOpen) return false;
    this.socket?.send(JSON.stringify(request));
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
    removeEventListener("online", this.retryEarly);
    document.removeEventListener("visibilitychange", this.retryEarly);
    this.closeSocket();
  }

  private get isOpen(): boolean {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  private start(): void {
    if (this.closed) return;
    addEventListener("online", this.retryEarly);
    document.addEventListener("visibilitychange", this.retryEarly);
    this.pingTimer = window.setInterval(this.ping, PING_EVERY_MS);
    this.connect();
  }

  private connect(): void {
    if (this.closed) return;
    clearTimeout(this.retryTimer);
    this.closeSocket();
    const query = new URLSearchParams({ session: this.session });
    this.startCursor = this.listener.cursor();
    // The replay starts one event early. Its first event shows if the server still has the cursor's
    // event.
    if (this.startCursor.seq > 1) query.set("after", String(this.startCursor.seq - 1));
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}${serverAddress("/ws")}?${query}`, socketProtocols());
    let opened = false;
    this.replaying = true;
    this.unreadable = false;
    this.socket = socket;
    this.connectStartedAt = Date.now();
    this.openTimer = window.setTimeout(() => this.abandon(), OPEN_WITHIN_MS);
    socket.onopen = () => {
      opened = true;
      clearTimeout(this.openTimer);
      this.listener.opened();
    };
    socket.onmessage = (message) => this.receive(String(message.data));
    socket.onclose = (event) => {
      if (this.socket !== socket) return;
      this.flush();
      this.closeSocket();
      if (event.code === 4401) this.end("signed_out");
      else if (event.code === 4404) this.end("no_such_session");
      else if (opened) this.retry();
      else void this.diagnose();
    };
  }

  /** Applies the result only if no newer connection exists. */
  private async diagnose(): Promise<void> {
    const why = await this.listener.diagnose();
    if (this.socket) return;
    if (why) this.end(why);
    else this.retry();
  }

  private receive(text: string): void {
    this.clearPongTimer();
    const frame = JSON.parse(text) as ServerFrame;
    const status = !isEvent(frame) && "status" in frame ? frame : undefined;
    const isCursor = isEvent(frame) && frame.seq === this.startCursor.seq;
    if ((status?.status === "hello" && status.last_seq < this.startCursor.seq) || (isCursor && frame.at !== this.startCursor.at)) {
      // The server's data was restored from a backup, so its new events would pass for known ones.
      // If the journal grew past the cursor again, the event's time differs.
      this.buffer = [];
      this.listener.rolledBack();
      return this.connect();
    }
    if (isCursor) return;
    if (status?.status === "hello") this.unreadable = false;
    if (!isEvent(frame) && "error" in frame) this.unreadable ||= frame.error.code === UNREADABLE_CODE;
    // A replay may hold the frame that exceeded the limit, so the count resets only afterwards.
    if (status?.status === "pong" && !this.replaying) this.missedPongs = 0;
    this.buffer.push(frame);
    if (status?.status === "synced") {
      this.attempts = 0;
      this.replaying = false;
      this.flush();
    }
    // The journal has arrived. Staying connected would make the server look for the session every
    // two seconds.
    if (this.unreadable && !this.replaying) return this.endUnreadable();
    if (status?.status === "synced") return;
    // A timer, because `requestAnimationFrame` stops in a hidden tab.
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
    const ceiling = Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** this.attempts++);
    const delay = ceiling * (0.5 + Math.random() / 2);
    this.listener.lost(Date.now() + delay);
    this.retryTimer = window.setTimeout(() => this.connect(), delay);
  }

  private endUnreadable(): void {
    this.flush();
    this.closeSocket();
    this.end("unreadable");
  }

  private end(why: SocketEndReason): void {
    if (this.closed) return;
    this.listener.ended(why);
  }

  private retryEarly = (): void => {
    if (document.hidden) return;
    if (this.isOpen) this.ping();
    else if (!this.socket || Date.now() - this.connectStartedAt > RETRY_EARLY_AFTER_MS) this.connect();
  };

  private ping = (): void => {
    // A further ping does not extend the current wait.
    if (this.pongTimer) return;
    const before = this.socket?.bufferedAmount ?? 0;
    if (!this.send({ action: "ping" })) return;
    this.unsentBytes = before;
    this.awaitPong();
  };

  private awaitPong(): void {
    const limit = Math.min(MAX_PONG_WITHIN_MS, PONG_WITHIN_MS * 2 ** this.missedPongs);
    this.pongTimer = window.setTimeout(this.pongOverdue, limit);
  }

  private pongOverdue = (): void => {
    const unsent = this.socket?.bufferedAmount ?? 0;
    if (unsent < this.unsentBytes) {
      // The line still sends, slowly. The ping is queued or just left.
      this.unsentBytes = unsent;
      return this.awaitPong();
    }
    this.missedPongs += 1;
    this.abandon();
  };

  private clearPongTimer(): void {
    clearTimeout(this.pongTimer);
    this.pongTimer = 0;
  }

  /** Abandons a dead socket. Its own close may take minutes. */
  private abandon(): void {
    if (!this.socket) return;
    this.flush();
    this.closeSocket();
    this.retry();
  }

  private closeSocket(): void {
    clearTimeout(this.openTimer);
    this.clearPongTimer();
    const socket = this.socket;
    this.socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }
}
