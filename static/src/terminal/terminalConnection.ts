// Connection to one terminal: reconnects by itself, and stops when the shell has ended.

import { signal } from "@preact/signals";
import { signedOut } from "../wire/rest";
import { openTerminalSocket, type TerminalSize } from "./openTerminalSocket";
import { parseTerminalFrame, type TerminalFrame } from "./terminalFrames";

const FIRST_RETRY_MS = 250;
const MAX_RETRY_MS = 10_000;
const PING_EVERY_MS = 20_000;
/** Limit of silence after a ping. The network may have disappeared without an error. */
const PONG_WITHIN_MS = 10_000;

/**
 * Bytes that the emulator may owe. A browser hands over output without asking. Above the limit the
 * connection closes, and the next one begins with the screen.
 */
export const OWED_LIMIT = 8 * 1024 * 1024;
/** Input that is kept while no connection is there, in bytes. */
const KEPT_INPUT = 4096;
/** Size limit of a frame of input, in bytes. The server closes at frames above 1 MiB. */
const INPUT_FRAME = 64 * 1024;

export type TerminalPhase =
  | { kind: "connecting" }
  /** The sandbox starts. */
  | { kind: "starting" }
  | { kind: "live" }
  /** The server is away. `retryAt`: next attempt, in milliseconds since the epoch. */
  | { kind: "away"; retryAt: number }
  /** The shell has ended. A new connection opens a new one. */
  | { kind: "ended"; code?: number; signal?: string; reason?: "sandbox" | "session" }
  /** The server rejected the connection. */
  | { kind: "rejected"; text: string };

/** Size in force, and its reason. */
export interface SizeInForce extends TerminalSize {
  clients: number;
}

/** Emulator as the connection uses it. */
export interface TerminalOutput {
  /** Shows bytes and calls `done` after they were taken in. */
  write(bytes: Uint8Array, done: () => void): void;
  resize(size: TerminalSize): void;
  /** Chooses if the emulator answers queries of programs. */
  setAnswering(answers: boolean): void;
}

/** Texts for close codes that end all attempts. */
const REJECTIONS: Record<number, string> = {
  4400: "The server rejected the terminal's name or size.",
  4404: "The session was not found.",
  4409: "This session already has eight terminals. Close one.",
};

export class TerminalConnection {
  readonly phase = signal<TerminalPhase>({ kind: "connecting" });
  readonly isPaused = signal(false);
  /** `null` until the server reports the size. */
  readonly size = signal<SizeInForce | null>(null);
  /** Newest error of a frame, for example of dropped input. */
  readonly problem = signal("");
  private socket: WebSocket | null = null;
  private attempts = 0;
  private owed = 0;
  /** True while the emulator catches up before the next connection. */
  private isOverrun = false;
  private kept: Uint8Array[] = [];
  private closed = false;
  private retryTimer: ReturnType<typeof setTimeout> | undefined;
  private pongTimer: ReturnType<typeof setTimeout> | undefined;
  private readonly pingTimer: ReturnType<typeof setInterval>;

  constructor(
    private readonly session: string,
    public name: string,
    private window: TerminalSize,
    private readonly output: TerminalOutput,
    private readonly listener: { renamed(name: string): void; ended(): void },
    private readonly open: typeof openTerminalSocket = openTerminalSocket,
  ) {
    this.pingTimer = setInterval(() => this.ping(), PING_EVERY_MS);
    addEventListener("online", this.online);
    this.connect();
  }

  /** Sends input. Without a connection, a little of it waits. */
  send(bytes: Uint8Array): void {
    if (this.isReady) {
      for (let at = 0; at < bytes.length; at += INPUT_FRAME) this.socket?.send(bytes.slice(at, at + INPUT_FRAME) as Uint8Array<ArrayBuffer>);
    } else if (this.kept.reduce((sum, one) => sum + one.length, bytes.length) <= KEPT_INPUT) this.kept.push(bytes);
  }

  /** Reports the size of the window. */
  resize(window: TerminalSize): void {
    if (window.cols === this.window.cols && window.rows === this.window.rows) return;
    this.window = window;
    if (this.isOpen) this.socket?.send(JSON.stringify({ type: "resize", ...window }));
  }

  /** Size of the window, as reported to the server. */
  get windowSize(): TerminalSize {
    return this.window;
  }

  /** Connects at once, also after the end: that opens a new shell. */
  retryNow = (): void => {
    if (this.closed || this.socket || this.isOverrun) return;
    this.connect();
  };

  /** Comes back with the network. An ended terminal stays: a new one could start a sandbox. */
  private online = (): void => {
    if (this.phase.peek().kind === "away") this.retryNow();
  };

  close(): void {
    this.closed = true;
    clearTimeout(this.retryTimer);
    clearInterval(this.pingTimer);
    removeEventListener("online", this.online);
    this.dropSocket();
  }

  private get isOpen(): boolean {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  private get isReady(): boolean {
    return this.isOpen && this.phase.peek().kind === "live";
  }

  private connect(): void {
    clearTimeout(this.retryTimer);
    this.dropSocket();
    this.problem.value = "";
    if (this.phase.peek().kind !== "away") this.phase.value = { kind: "connecting" };
    const socket = this.open(this.session, this.name, this.window);
    this.socket = socket;
    socket.onmessage = ({ data }) => {
      this.heard();
      if (typeof data !== "string") return this.receive(new Uint8Array(data as ArrayBuffer));
      const frame = parseTerminalFrame(data);
      if (frame) this.apply(frame);
    };
    socket.onclose = ({ code }) => {
      if (this.socket !== socket) return;
      this.dropSocket();
      this.lost(code);
    };
  }

  private receive(bytes: Uint8Array): void {
    this.owed += bytes.length;
    this.output.write(bytes, () => this.taken(bytes.length));
    if (this.owed <= OWED_LIMIT || this.isOverrun) return;
    this.isOverrun = true;
    this.dropSocket();
  }

  private taken(count: number): void {
    this.owed -= count;
    if (!this.isOverrun || this.owed > 0) return;
    this.isOverrun = false;
    if (!this.closed) this.connect();
  }

  private apply(frame: TerminalFrame): void {
    switch (frame.type) {
      case "starting":
        this.phase.value = { kind: "starting" };
        return;
      case "ready":
        this.attempts = 0;
        this.isPaused.value = false;
        this.phase.value = { kind: "live" };
        this.sendKept();
        return;
      case "size":
        this.size.value = { cols: frame.cols, rows: frame.rows, clients: frame.clients };
        this.output.setAnswering(frame.answers);
        this.output.resize(frame);
        return;
      case "paused":
      case "resumed":
        this.isPaused.value = frame.type === "paused";
        return;
      case "renamed":
        this.name = frame.name;
        this.listener.renamed(frame.name);
        return;
      case "exit": {
        const { type: _, ...end } = frame;
        this.kept = [];
        this.phase.value = { kind: "ended", ...end };
        this.listener.ended();
        return;
      }
      case "error":
        this.problem.value = frame.error.message;
        return;
      case "pong":
        return;
    }
  }

  private sendKept(): void {
    const kept = this.kept;
    this.kept = [];
    for (const bytes of kept) this.send(bytes);
  }

  private lost(code: number): void {
    if (this.closed || this.phase.peek().kind === "ended") return;
    const rejection = REJECTIONS[code];
    if (code === 4401) signedOut.value = true;
    if (code === 4401 || rejection !== undefined) {
      this.phase.value = { kind: "rejected", text: this.problem.peek() || rejection || "This browser is signed out." };
      return;
    }
    const ceiling = Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** this.attempts++);
    const delay = ceiling * (0.5 + Math.random() / 2);
    this.phase.value = { kind: "away", retryAt: Date.now() + delay };
    this.retryTimer = setTimeout(() => this.connect(), delay);
  }

  private ping(): void {
    if (!this.isOpen || this.pongTimer !== undefined) return;
    this.socket?.send(JSON.stringify({ type: "ping" }));
    this.pongTimer = setTimeout(() => {
      this.dropSocket();
      this.lost(0);
    }, PONG_WITHIN_MS);
  }

  private heard(): void {
    clearTimeout(this.pongTimer);
    this.pongTimer = undefined;
  }

  private dropSocket(): void {
    this.heard();
    const socket = this.socket;
    this.socket = null;
    if (!socket) return;
    socket.onmessage = socket.onclose = null;
    socket.close();
  }
}
