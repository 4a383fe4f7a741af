import assert from "node:assert/strict";
import { test } from "node:test";
import { colouredTexts } from "../src/state/ansi";
import { newestLines } from "../src/state/codeText";
import { matching, sessionEntries, type PaletteEntry } from "../src/state/paletteEntries";
import { escapeInvisible, plainOutput, stripEscapes } from "../src/escapes";
import { DEFAULT_FILTER, kindOf, latency, FilteredFrames, summary } from "../src/state/frameFilter";
import { moveByKey } from "../src/state/divider";
import { DEFAULT_LAYOUT, clampShare, initialLayout, parseLayout, type PaneLayout } from "../src/state/layout";
import { withLoad } from "../src/state/sandboxLoad";
import { FrameLog, toJsonLines, type LoggedFrame } from "../src/wire/frameLog";
import { readRecording } from "../src/wire/recordingFile";
import type { Session } from "../src/wire/frame";
import type { SandboxRow } from "../src/wire/lazyRest";
import { uploadName } from "../src/wire/upload";

test("divider keeps both sides readable", () => {
  assert.deepEqual([0, 0.25, 0.5, 0.9].map(clampShare), [0.25, 0.25, 0.5, 0.75]);
  const half = { share: 0.5, folded: null, tab: null };
  const keys = ["ArrowLeft", "ArrowRight"] as const;
  assert.equal(moveByKey(half, "ArrowLeft", keys)?.share, 0.48);
  assert.equal(moveByKey(half, "ArrowRight", keys)?.share, 0.52);
  assert.equal(moveByKey(half, "Home", keys)?.share, 0.25);
  assert.equal(moveByKey(half, "End", keys)?.share, 0.75);
  assert.equal(moveByKey(half, "Enter", keys)?.folded, "workspace");
  assert.equal(moveByKey(half, "ArrowUp", keys), null);
});

test("stored layout is parsed as far as valid", () => {
  const open = { ...DEFAULT_LAYOUT, folded: null };
  for (const kept of [null, "{", "7", '{"share":"x","folded":"x","tab":"x"}']) {
    assert.deepEqual(parseLayout(kept), DEFAULT_LAYOUT);
    assert.deepEqual(parseLayout(kept, open), open);
  }
  assert.deepEqual(parseLayout('{"share":9,"folded":"chat","tab":"events"}'), { share: 0.75, folded: "chat", tab: "events" });
});

test("workspace opens on request and then also with the next session", () => {
  assert.equal(DEFAULT_LAYOUT.folded, "workspace");
  const left = (folded: PaneLayout["folded"]): PaneLayout => ({ share: 0.4, folded, tab: "events" });
  assert.deepEqual(initialLayout(left(null), false), { share: 0.4, folded: null, tab: null });
  assert.equal(initialLayout(left(null), true).folded, "workspace", "on a narrow screen it would cover the conversation");
  assert.equal(initialLayout(left("workspace"), false).folded, "workspace");
  assert.equal(initialLayout(left("chat"), false).folded, null, "a session never opens without the conversation");
});

test("escape sequences are removed, except colours on request", () => {
  const check = (text: string, plain: string, colours = plain) => {
    assert.equal(stripEscapes(text), plain, JSON.stringify(text));
    assert.equal(stripEscapes(text, true), colours, JSON.stringify(text));
  };
  check("\x1b[31mred\x1b[0m", "red", "\x1b[31mred\x1b[0m");
  check("a\x1b]0;a title\x07b", "ab");
  check("a\x1b]52;c;ZXZpbA==\x1b\\b", "ab");
  check("a\x1b]8;;javascript:alert(1)\x1b\\link\x1b]8;;\x1b\\b", "alinkb");
  check("a\x1b]0;never ends", "a");
  check("a\x1bPq#0;2;0;0;0\x1b\\b", "ab");
  check("a\x1b_apc\x1b\\b\x1b^pm\x1b\\c\x1bXsos\x1b\\d", "abcd");
  check("a\x1b[2J\x1b[Hb\x1b[?25lc", "abc");
  check("a\x9b31mb\x9d0;t\x9cc\x90q\x9cd", "abcd");
  check("a\x1b(Bb\x1b=c\x1b7d", "abcd");
  check("a\x08\x07\x00b\x7f", "ab");
  check("tab\tline\nreturn\r", "tab\tline\nreturn\r");
  check("a\x1b[", "a");
  check("a\x1b", "a");
  check("a\x1b]0;cut short\x1b[31mb", "ab", "a\x1b[31mb");
});

test("flood of one character takes no longer than other text", () => {
  const check = (text: string, plain: string) => assert.ok(plainOutput(text) === plain, JSON.stringify(text.slice(0, 9)));
  const many = 65_536;
  check("x".repeat(many), "x".repeat(many));
  check("\r".repeat(many), "\r".repeat(many));
  check("x\r".repeat(many), "x\r");
  check(`${"\x9d".repeat(many)}\x1b`, "");
  check(`${"\x1b]".repeat(many)}\x1b`, "");
  check(`${"\n".repeat(40_000)}x`, `${"\n".repeat(40_000)}x`);
  const shown = (text: string) => colouredTexts(newestLines(text, 40_000)).map((piece) => piece.text).join("");
  assert.ok(shown(`${"\n".repeat(39_999)}x`) === `${"\n".repeat(39_999)}x`);
  assert.ok(shown("x".repeat(many)) === `…${"x".repeat(40_000)}`, "only the end, also without a line break");
  assert.ok(shown(`${"x".repeat(many)}\n${"y".repeat(39_500)}`) === "y".repeat(39_500), "a whole line if possible");
});

test("invisible characters are made visible", () => {
  assert.equal(escapeInvisible("rm -r build\x1b[2K\rls\n\tok"), "rm -r build\\u{1b}[2K\\u{d}ls\n\tok");
  assert.equal(escapeInvisible("a\u202eb\u200bc\u2066d"), "a\\u{202e}b\\u{200b}c\\u{2066}d");
  const unseen = "\u00ad\u034f\u115f\u1160\u180e\u2028\u2029\u2800\u3164\ufe0f\uffa0\u{e0001}\u{e0041}\u{e007f}\u{e0100}";
  for (const char of unseen) assert.equal(escapeInvisible(`a${char}b`), `a\\u{${char.codePointAt(0)!.toString(16)}}b`);
  const seen = "Größe\u0301 日本 한글 عربي ❤\ufe0f ⚠\ufe0e 1\ufe0f\u20e3 🎭";
  assert.equal(escapeInvisible(seen), seen);
  assert.equal(escapeInvisible("❤\ufe0f\ufe0f"), "❤\ufe0f\\u{fe0f}");
});

test("overwritten line shows its last text", () => {
  assert.equal(plainOutput("10 %\r50 %\rdone\nnext\r\n"), "done\nnext\n");
  assert.equal(plainOutput("10 %\r50 %\r\r"), "50 %\r\r", "no text follows yet");
});

test("only colours become classes", () => {
  const check = (text: string, expected: unknown[]) =>
    assert.deepEqual(colouredTexts(text).map(({ text, className, colours }) => [text, className, colours]), expected);
  check("", []);
  check("plain\n", [["plain", undefined, undefined]]);
  check("\x1b[31mred\x1b[0m plain", [["red", "ansi-red", undefined], [" plain", undefined, undefined]]);
  check("\x1b[1;92;44mloud", [["loud", "ansi-bright-green ansi-blue-ground ansi-bold", undefined]]);
  check("\x1b[38;5;196mcube", [["cube", undefined, { color: "rgb(255 0 0)", backgroundColor: undefined }]]);
  check("\x1b[38;2;1;2;3mexact", [["exact", undefined, { color: "rgb(1, 2, 3)", backgroundColor: undefined }]]);
  check('<img src=x onerror="alert(1)">', [['<img src=x onerror="alert(1)">', undefined, undefined]]);
});

const entry = (n: number, way: LoggedFrame["way"], frame: object, at = 1000, replayed = false): LoggedFrame =>
  ({ n, way, frame, at, replayed }) as unknown as LoggedFrame;

test("frames are summarised, filtered and timed", () => {
  const at = new Date(900).toISOString();
  const all = [
    entry(1, "in", { status: "hello", session: null }),
    entry(2, "out", { action: "message", args: { content: "go" }, id: "w" }, 950),
    entry(3, "in", { seq: 1, at, source: "user", action: "message", args: { content: "go" }, message: "Message: go." }),
    entry(4, "in", { status: "accepted", id: "w", seq: 1 }, 980),
    entry(5, "in", { delta: "text", item: "a", offset: 0, content: "He" }),
    entry(6, "in", { seq: 2, at, source: "agent", observation: "message", content: "Hello", extras: {} }, 800),
    entry(7, "in", { seq: 3, at, source: "agent", observation: "usage", content: "", extras: { model: "m" } }, 1000, true),
    entry(8, "in", { error: { code: "busy", message: "no" }, id: "z" }),
  ];
  assert.deepEqual(all.map((one) => `${kindOf(one).family} ${kindOf(one).name}`), [
    "status hello", "request message", "action message", "status accepted", "delta text", "observation message", "observation usage", "error busy",
  ]);
  assert.deepEqual(all.map((one) => latency(one, all)), [null, null, 100, 30, null, null, null, null]);
  assert.deepEqual(all.map(summary), [
    '{"session":null}', '{"content":"go"}', "Message: go.", '{"id":"w","seq":1}', "He", "Hello", '{"model":"m"}', "no",
  ]);
  const numbers = (filter: Partial<typeof DEFAULT_FILTER>) => new FilteredFrames().of(all, { ...DEFAULT_FILTER, ...filter }).map(({ n }) => n);
  assert.deepEqual(numbers({}), [1, 2, 3, 4, 6, 7, 8]);
  assert.deepEqual(numbers({ deltas: true }), [1, 2, 3, 4, 5, 6, 7, 8]);
  assert.deepEqual(numbers({ way: "out" }), [2]);
  assert.deepEqual(numbers({ text: "HELLO" }), [1, 6]);
});

test("log drops the oldest frames and its download can be read again", () => {
  const log = new FrameLog();
  for (let n = 0; n < 60_000; n += 1) log.add("in", { status: "pong" }, 0, false);
  assert.ok(log.entries.length <= 25_000);
  assert.equal(log.entries.at(-1)?.n, 60_000);
  log.clear();
  log.add("out", { action: "pause" }, 0, false);
  log.add("in", { seq: 1, at: "2026-01-01T00:00:00.000Z", source: "user", action: "pause", args: {} }, 0, false);
  const read = readRecording(toJsonLines(log.entries));
  assert.deepEqual(read, [{ seq: 1, at: "2026-01-01T00:00:00.000Z", source: "user", action: "pause", args: {} }]);
});

test("invalid recording reports the reason", () => {
  const refused = (text: string, why: RegExp) => assert.throws(() => readRecording(text), why);
  refused("", /no event/);
  refused("hello", /line 1 is not JSON/);
  refused('{"seq":1}\n[', /line 2 is not JSON/);
  refused("7", /line 1 is not an object/);
  refused('{"session":{"id":"x"}}', /no event/);
});

test("sandbox load follows from two samples", () => {
  const row = (cpu_us: number | null): SandboxRow => ({ session: "s", driver: "process", state: "running", memory_bytes: 1, cpu_us, processes: 1 });
  const first = withLoad([row(1_000_000)], 10_000, []);
  assert.equal(first[0]?.cpu, null);
  assert.equal(withLoad([row(2_000_000)], 12_000, first)[0]?.cpu, 0.5);
  assert.equal(withLoad([row(0)], 12_000, first)[0]?.cpu, 0, "the sandbox was restarted");
  assert.equal(withLoad([row(null)], 12_000, first)[0]?.cpu, null);
});

test("uploaded file name fits any file system", () => {
  const check = (name: string, attempt: number, expected: string) => assert.equal(uploadName(name, attempt), expected);
  check("plan.pdf", 1, "plan.pdf");
  check("plan.pdf", 3, "plan-3.pdf");
  check("../../etc/passwd", 1, "etc-passwd");
  check("a\nb:c.txt", 1, "a-b-c.txt");
  check(".bashrc", 1, "bashrc");
  check("", 2, "file-2");
  check("Grüße 🎭.txt", 1, "Grüße 🎭.txt");
});

test("palette matches any word, starts of words first", () => {
  const entries = ["Export as Markdown", "Fix the exporter", "Remark", "New session"].map((text): PaletteEntry => ({
    id: text, text, group: "Greenroom", run() {},
  }));
  const find = (query: string) => matching(entries, query).map(({ text }) => text);
  assert.deepEqual(find("mark"), ["Export as Markdown", "Remark"]);
  assert.deepEqual(find("ex mark"), ["Export as Markdown"]);
  assert.deepEqual(find("zzz"), []);
  assert.equal(find("").length, 4);
});

test("palette finds any session and limits the number shown", () => {
  const told = Array.from({ length: 200 }, (_, n) => ({ id: `s${n}`, title: `work ${n}.`, state: "idle" }) as Session);
  const entries = [...sessionEntries(told, () => {}), { id: "a", text: "work offline", group: "Greenroom", run() {} } as const];
  assert.deepEqual(matching(entries, "work 177.").map(({ id }) => id), ["session-s177"]);
  assert.equal(matching(entries, "work").length, 31);
});
