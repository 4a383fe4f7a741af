// Terminals: frames, connection, touch keys, tabs, typed commands.

import "./testWindow";
import assert from "node:assert/strict";
import { beforeEach, test, type TestContext } from "node:test";
import { isWebAddress } from "../src/terminal/LinkDialog";
import { phaseText } from "../src/terminal/ShellStatus";
import { rowKeyInput, withCtrl } from "../src/terminal/touchKeys";
import type { TerminalSize } from "../src/terminal/openTerminalSocket";
import { OutputWriter } from "../src/terminal/outputWriter";
import { OWED_LIMIT, TerminalConnection } from "../src/terminal/terminalConnection";
import { parseTerminalFrame } from "../src/terminal/terminalFrames";
import { TerminalTabs } from "../src/terminal/terminalTabs";
import { typable } from "../src/terminal/typedCommand";
import { RestError } from "../src/wire/rest";

beforeEach(() => {
  localStorage.clear();
  sessionStorage.clear();
});

/** Socket that the test opens, fills and closes. */
class TestTerminalSocket {
  static readonly OPEN = 1;
  readyState = 0;
  sent: unknown[] = [];
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;

  constructor(readonly name: string) {}

  send(data: unknown): void {
    this.sent.push(typeof data === "string" ? JSON.parse(data) : new TextDecoder().decode(data as Uint8Array));
  }

  close(): void {
    this.readyState = 3;
  }

  control(...frames: object[]): void {
    this.readyState = 1;
    for (const frame of frames) this.onmessage?.({ data: JSON.stringify(frame) });
  }

  bytes(content: Uint8Array<ArrayBuffer>): void {
    this.onmessage?.({ data: content.buffer });
  }

  lose(code: number): void {
    this.readyState = 3;
    this.onclose?.({ code });
  }
}

/** Connection with the test as its server and its emulator. */
class ConnectionHarness {
  readonly sockets: TestTerminalSocket[] = [];
  readonly taken: (() => void)[] = [];
  shown = "";
  sizes: TerminalSize[] = [];
  renames: string[] = [];
  readonly connection: TerminalConnection;

  constructor(context: TestContext) {
    context.mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
    Object.assign(globalThis, { WebSocket: TestTerminalSocket });
    const output = {
      write: (bytes: Uint8Array, done: () => void) => {
        this.shown += bytes.length < 100 ? new TextDecoder().decode(bytes) : "…";
        this.taken.push(done);
      },
      resize: ({ cols, rows }: TerminalSize) => void this.sizes.push({ cols, rows }),
      setAnswering: () => {},
    };
    const listener = { renamed: (name: string) => void this.renames.push(name), ended: () => {} };
    this.connection = new TerminalConnection("s1", "main", { cols: 100, rows: 30 }, output, listener, (_, name) => {
      const socket = new TestTerminalSocket(name);
      this.sockets.push(socket);
      return socket as unknown as WebSocket;
    });
    context.after(() => this.connection.close());
  }

  get socket(): TestTerminalSocket {
    return this.sockets.at(-1)!;
  }
}

const encode = (text: string) => new TextEncoder().encode(text);
const READY = { type: "ready", name: "main", opened: true };

test("frames of unknown types and broken frames are ignored", () => {
  assert.deepEqual(parseTerminalFrame('{"type":"exit","code":3,"more":1}'), { type: "exit", code: 3, more: 1 });
  for (const text of ['{"type":"future"}', "{", "null", "7", '{"type":7}']) assert.equal(parseTerminalFrame(text), null, text);
});

test("terminal is live after `ready`, and early input waits", (t) => {
  const harness = new ConnectionHarness(t);
  const { connection, socket } = harness;
  connection.send(encode("ls\r"));
  socket.control({ type: "starting" });
  assert.equal(connection.phase.value.kind, "starting");
  assert.deepEqual(socket.sent, []);
  socket.control(READY, { type: "size", cols: 80, rows: 24, clients: 2, answers: false });
  assert.equal(connection.phase.value.kind, "live");
  assert.deepEqual(socket.sent, ["ls\r"]);
  assert.deepEqual(harness.sizes, [{ cols: 80, rows: 24 }]);
  socket.bytes(encode("hello"));
  assert.equal(harness.shown, "hello");
  connection.resize({ cols: 90, rows: 30 });
  connection.resize({ cols: 90, rows: 30 });
  assert.deepEqual(socket.sent.slice(1), [{ type: "resize", cols: 90, rows: 30 }]);
  socket.control({ type: "paused" });
  assert.equal(connection.isPaused.value, true);
  socket.control({ type: "resumed" }, { type: "renamed", name: "build" });
  assert.deepEqual([connection.isPaused.value, harness.renames], [false, ["build"]]);
});

test("lost connection comes back by itself under the newest name", (t) => {
  const harness = new ConnectionHarness(t);
  harness.socket.control(READY, { type: "renamed", name: "build" });
  harness.socket.lose(1001);
  assert.equal(harness.connection.phase.value.kind, "away");
  t.mock.timers.tick(250);
  assert.deepEqual(harness.sockets.map(({ name }) => name), ["main", "build"]);
  assert.equal(harness.connection.phase.value.kind, "away", "the last screen stays until the server answers");
  harness.socket.lose(1006);
  t.mock.timers.tick(500);
  harness.socket.control(READY);
  assert.equal(harness.connection.phase.value.kind, "live");
});

test("silent connection is replaced", (t) => {
  const harness = new ConnectionHarness(t);
  harness.socket.control(READY);
  t.mock.timers.tick(20_000);
  assert.deepEqual(harness.socket.sent, [{ type: "ping" }]);
  harness.socket.control({ type: "pong" });
  t.mock.timers.tick(20_000);
  assert.equal(harness.sockets.length, 1);
  t.mock.timers.tick(10_000);
  assert.equal(harness.connection.phase.value.kind, "away");
  t.mock.timers.tick(250);
  assert.equal(harness.sockets.length, 2);
});

test("ended shell stays ended until a person opens a new one", (t) => {
  const harness = new ConnectionHarness(t);
  harness.socket.control(READY, { type: "exit", reason: "sandbox" });
  harness.socket.lose(1000);
  t.mock.timers.tick(60_000);
  assert.equal(harness.sockets.length, 1);
  assert.deepEqual(harness.connection.phase.value, { kind: "ended", reason: "sandbox" });
  harness.connection.retryNow();
  assert.equal(harness.sockets.length, 2);
  harness.socket.lose(4409);
  t.mock.timers.tick(60_000);
  assert.equal(harness.sockets.length, 2);
  assert.match(phaseText(harness.connection.phase.value), /eight terminals/);
});

test("flood closes the connection until the emulator has caught up", (t) => {
  const harness = new ConnectionHarness(t);
  harness.socket.control(READY);
  const piece = new Uint8Array(1024 * 1024);
  for (let sent = 0; sent <= OWED_LIMIT; sent += piece.length) harness.socket.bytes(piece);
  assert.equal(harness.socket.readyState, 3);
  harness.connection.send(encode("\x03"));
  const [last, ...others] = harness.taken.reverse();
  for (const done of others) done();
  assert.equal(harness.sockets.length, 1);
  last!();
  assert.equal(harness.sockets.length, 2, "the next connection begins with the screen");
  harness.socket.control(READY);
  assert.deepEqual(harness.socket.sent, ["\x03"], "a key pressed meanwhile is not lost");
});

test("states have their own texts", () => {
  const check = (end: object, expected: string) => assert.equal(phaseText({ kind: "ended", ...end }), expected);
  check({ code: 0 }, "The shell has ended.");
  check({ code: 3 }, "The shell ended with code 3.");
  check({ code: 0, signal: "SIGKILL" }, "The shell was ended by SIGKILL.");
  check({ reason: "sandbox" }, "The sandbox stopped.");
  check({ reason: "session" }, "The session has ended.");
});

test("touch keys send what a keyboard would", () => {
  const plain = { ctrl: false, applicationCursor: false };
  const check = (key: Parameters<typeof rowKeyInput>[0], modes: object, expected: string) =>
    assert.equal(rowKeyInput(key, { ...plain, ...modes }), expected, key);
  check("Esc", {}, "\x1b");
  check("Tab", {}, "\t");
  check("Up", {}, "\x1b[A");
  check("Left", { applicationCursor: true }, "\x1bOD");
  check("Right", { ctrl: true, applicationCursor: true }, "\x1b[1;5C");
  check("Ctrl", {}, "");
  assert.deepEqual(["c", "C", "[", "@", " ", "?", "é", "ab", "1"].map(withCtrl), ["\x03", "\x03", "\x1b", "\x00", "\x00", "\x7f", null, null, null]);
});

test("tabs open, rename and close, at most eight", async () => {
  const calls: string[] = [];
  let problem: RestError | null = null;
  const answer = async (call: string) => {
    calls.push(call);
    if (problem) throw problem;
    const open = { cols: 80, rows: 24, clients: 1, command: null };
    return { items: [{ name: "main", ...open }, { name: "theirs", ...open }] };
  };
  const tabs = new TerminalTabs("s1", {
    listTerminals: () => answer("list"),
    renameTerminal: (_, name, to) => answer(`${name} → ${to}`),
    closeTerminal: (_, name) => answer(`close ${name}`),
  });
  await tabs.refresh();
  assert.deepEqual(tabs.names.value, ["main", "theirs"]);
  tabs.add();
  assert.deepEqual(tabs.shown.value, { kind: "shell", name: "shell-2" });
  assert.match(await tabs.rename("shell-2", "a b"), /letters/);
  assert.match(await tabs.rename("shell-2", "main"), /Another terminal/);
  assert.equal(await tabs.rename("shell-2", "build"), "");
  assert.deepEqual(tabs.shown.value, { kind: "shell", name: "build" });
  assert.deepEqual(new TerminalTabs("s1").shown.value, { kind: "shell", name: "build" }, "a reload shows the same tab");
  problem = new RestError(503, "the session is paused", "unavailable");
  await tabs.close("build");
  assert.equal(tabs.problem.value, "the session is paused");
  problem = new RestError(404, "no terminal", "not_found");
  await tabs.close("build");
  assert.deepEqual([tabs.names.value, tabs.shown.value], [["main", "theirs"], { kind: "shell", name: "theirs" }]);
  for (let n = 0; n < 9; n += 1) tabs.add();
  assert.deepEqual([tabs.names.value.length, tabs.isFull], [8, true]);
  assert.deepEqual(calls, ["list", "shell-2 → build", "close build", "close build"]);
});

test("command is typed without characters that a terminal acts on", () => {
  assert.equal(typable(" make all \n"), "make all");
  assert.equal(typable("echo a\x1b[201~\rrm -r x"), "echo a\nrm -r x");
  assert.equal(typable("a\tb\x00\x03\x9b"), "a b");
  assert.deepEqual(["https://a.b/c", "javascript:alert(1)", "file:///etc", "HTTP://x"].map(isWebAddress), [true, false, false, true]);
});

test("growing output is written once", () => {
  let shown = "";
  const writer = new OutputWriter({ write: (text) => (shown += text), clear: () => (shown = "") });
  for (const text of ["a", "ab", "ab", "xyz"]) writer.show(text);
  assert.equal(shown, "xyz");
  writer.show("xyz!");
  assert.equal(shown, "xyz!");
});
