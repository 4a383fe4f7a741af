import assert from "node:assert/strict";
import { test } from "node:test";
import { activityOf, isBusy, isResumable, isInterruptible } from "../src/state/activity";
import { reduce } from "../src/state/reduce";
import { emptyState } from "../src/state/screenState";
import type { TextRow } from "../src/state/rows";
import type { ObservationExtras } from "../src/wire/event";
import { rowsOf, FrameScript } from "./frameScript";

function check(script: FrameScript, expected: string[]): void {
  assert.deepEqual(rowsOf(script.play()), expected);
  // Single frames lead to the same screen as a batch.
  const oneByOne = script.frames.reduce((state, frame) => reduce(state, [frame]), emptyState);
  assert.deepEqual(oneByOne, script.play());
}

/** Next step after a lost sandbox. */
const NEXT = " Send a message to start a new sandbox.";

const RUN = { command: "ls", exit_code: 0, duration_ms: 12 };

test("text streams and the durable event replaces it", () => {
  const script = new FrameScript()
    .push({ delta: "text", item: "a", offset: 0, content: "Hel" })
    .push({ delta: "text", item: "a", offset: 3, content: "lo" });
  check(script, ["text open: Hello"]);
  check(script.addObservation("message", "Hello!", {}, { item: "a" }), ["text: Hello!"]);
  check(script.push({ delta: "text", item: "a", offset: 5, content: " late" }), ["text: Hello!"]);
});

test("offsets count bytes, 0 restarts, a piece without its beginning is dropped", () => {
  check(
    new FrameScript()
      .push({ delta: "text", item: "a", offset: 0, content: "Grüße" })
      .push({ delta: "text", item: "a", offset: 7, content: " 🎭" })
      .push({ delta: "text", item: "a", offset: 12, content: "!" }),
    ["text open: Grüße 🎭!"],
  );
  check(
    new FrameScript()
      .push({ delta: "text", item: "a", offset: 0, content: "old" })
      .push({ delta: "text", item: "a", offset: 0, content: "new" }),
    ["text open: new"],
  );
  check(
    new FrameScript()
      .push({ delta: "text", item: "a", offset: 0, content: "ab" })
      .push({ delta: "text", item: "b", offset: 4, content: "headless" }),
    ["text open: ab"],
  );
  // A late client receives the end of a long item as if it began there.
  check(
    new FrameScript()
      .push({ delta: "text", item: "a", offset: 0, content: "…the énd" })
      .push({ delta: "text", item: "a", offset: 900_000, content: " and more" })
      .push({ delta: "text", item: "a", offset: 900_004, content: "! on" })
      .push({ delta: "text", item: "a", offset: 900_008, content: "." }),
    ["text open: …the énd and! on."],
  );
  check(
    new FrameScript()
      .push({ delta: "text", item: "a", offset: 0, content: "abcd" })
      .push({ delta: "text", item: "a", offset: 2, content: "XY" }),
    ["text open: abXY"],
  );
});

test("tool call is written, runs, prints and ends in one row", () => {
  const script = new FrameScript().push({ delta: "tool_input", item: "t", offset: 0, content: '{"comm' });
  check(script, ["unwritten running: "]);
  script.addAction("agent", "run", { command: "ls" }, { item: "t" });
  script.push({ delta: "output", item: "t", offset: 0, content: "LICENSE\n" });
  check(script, ["run running: LICENSE\n"]);
  check(script.addObservation("run", "LICENSE\nsrc\n", RUN, { item: "t" }), ["run ok: LICENSE\nsrc\n"]);
});

test("result without an item finds its call by cause", () => {
  check(new FrameScript().addAction("user", "run", { command: "ls" }).addObservation("run", "src\n", RUN, { cause: 1 }), ["run ok: src\n"]);
});

test("outcomes of a command", () => {
  const ended = (extras: Partial<typeof RUN> & { timed_out?: boolean }, expected: string) =>
    check(
      new FrameScript()
        .addAction("agent", "run", { command: "ls" }, { item: "t" })
        .addObservation("run", "", { command: "ls", duration_ms: 1, ...extras }, { item: "t" }),
      [expected],
    );
  ended({ exit_code: 0 }, "run ok: ");
  ended({ exit_code: 2 }, "run failed: ");
  ended({}, "run stopped: ");
  ended({ timed_out: true }, "run failed: ");
});

test("interrupt closes open rows and leaves a receipt", () => {
  const script = new FrameScript()
    .addAction("agent", "run", { command: "sleep 99" }, { item: "t" })
    .push({ delta: "output", item: "t", offset: 0, content: "tick\n" })
    .push({ delta: "text", item: "a", offset: 0, content: "Half a sen" })
    .push({ delta: "tool_input", item: "u", offset: 0, content: "{" })
    .addObservation("interrupted", "", { what: "the command sleep 99", stopped_ms: 320, rung: "kill_processes", partial: false });
  check(script, ["run stopped: tick\n", "text partial: Half a sen", "quiet: Interrupted the command sleep 99 in 320 ms."]);
});

test("queued message moves to the place of its delivery", () => {
  const queued = { item: "m", content: "and a README" };
  const script = new FrameScript()
    .addAction("user", "start", { task: "a script" })
    .addObservation("chat", "a script", {}, { cause: 1 })
    .addAction("user", "message", { content: "and a README" }, { item: "m" })
    .addObservation("queue", "", { items: [queued] })
    .addObservation("message", "Done.", {}, { item: "a" });
  check(script, ["delivered user: a script", "queued user: and a README", "text: Done."]);
  assert.deepEqual(script.play().queue, [queued]);
  script.addObservation("queue", "", { items: [] });
  check(script, ["delivered user: a script", "withdrawn user: and a README", "text: Done."]);
  script.addObservation("chat", "and a short README", {}, { item: "m", cause: 3 });
  check(script, ["delivered user: a script", "text: Done.", "turn finished", "delivered user: and a short README"]);
});

test("replayed known events change nothing", () => {
  const script = new FrameScript().addAction("user", "start", { task: "a" }).addObservation("message", "b", {}, { item: "x" });
  const once = script.play();
  assert.deepEqual(script.play(once), once);
});

test("reconnect reports the number of new events", () => {
  const script = new FrameScript().push({ local: "opened" }).push(hello(0)).addAction("user", "start", { task: "a" });
  script.push({ status: "synced", seq: 1 });
  assert.equal(script.play().caughtUp, null);
  script.push({ local: "lost", retryAt: 5 });
  assert.deepEqual(script.play().connection, { phase: "lost", retryAt: 5 });
  assert.deepEqual(rowsOf(script.play()), ["sent user: a"]);
  script.push({ local: "opened" }).push(hello(3)).addObservation("message", "b", {}).addObservation("message", "c", {});
  script.push({ status: "synced", seq: 3 });
  assert.equal(script.play().caughtUp?.events, 2);
  assert.deepEqual(script.play().connection, { phase: "live" });
});

test("screen reader announces finished texts once and nothing of the past", () => {
  const spoken = (script: FrameScript) => script.play().announcements.map(({ text }) => text);
  const script = new FrameScript().push({ local: "opened" }).push(hello(0)).addObservation("message", "of yesterday", {});
  script.push({ status: "synced", seq: 1 });
  assert.deepEqual(spoken(script), []);
  script.push({ delta: "text", item: "a", offset: 0, content: "Hel" });
  assert.deepEqual(spoken(script), []);
  script.addObservation("message", "Hello", {}, { item: "a" });
  assert.deepEqual(spoken(script), ["Hello"]);
  const again = reduce(script.play(), script.frames.filter((frame) => "seq" in frame && !("status" in frame)));
  assert.deepEqual(again.announcements.map(({ text }) => text), ["Hello"]);
  script.push({ local: "lost", retryAt: 0 }).push({ local: "opened" }).push(hello(2));
  script.addObservation("message", "while you were away", {}).push({ status: "synced", seq: 3 });
  assert.deepEqual(spoken(script), ["Hello", "while you were away"]);
});

test("lost sandbox and its failure are one notice, and a new plan replaces the old one", () => {
  const why = "the sandbox died with exit code 137";
  const died = new FrameScript().addObservation("sandbox", why, { phase: "lost", exit_code: 137 }).state("failed", why);
  check(died, [`bad: The sandbox was killed (SIGKILL, exit code 137).${NEXT}`]);
  assert.equal(activityOf(died.play()).text, "Failed", "the reason is shown");
  check(new FrameScript().addObservation("sandbox", why, { phase: "lost", exit_code: 137 }).state("failed", "no image"), [
    `bad: The sandbox was killed (SIGKILL, exit code 137).${NEXT}`,
    "bad: Failed: no image",
  ]);
  check(new FrameScript().state("failed", "no image"), ["bad: Failed: no image"]);
  const plans = new FrameScript().addObservation("plan", "- [ ] a", { path: "P", items: [] }).addObservation("plan", "- [x] a", { path: "P", items: [] });
  assert.deepEqual(plans.play().rows.map((row) => row.kind === "plan" && row.superseded), [true, false]);
  assert.equal(plans.play().plan?.markdown, "- [x] a");
});

test("request is pending until accepted", () => {
  const request = { action: "message" as const, args: { content: "go on", mode: "queue" as const } };
  const script = new FrameScript().push({ local: "sent", id: "w", request });
  assert.deepEqual(script.play().pending, [{ id: "w", request }]);
  script.push({ status: "accepted", id: "w", seq: 1 });
  assert.deepEqual(script.play().pending, [{ id: "w", request, seq: 1 }], "the event has not arrived yet");
  script.addAction("user", "message", { content: "go on" });
  assert.deepEqual(script.play().pending, []);
});

test("rejected request keeps its reason until discarded", () => {
  const script = new FrameScript()
    .push({ local: "sent", id: "w", request: { action: "pause" } })
    .push({ error: { code: "conflict", message: "nothing is running" }, id: "w" });
  assert.equal(script.play().pending[0]?.rejection, "nothing is running");
  assert.deepEqual(script.push({ local: "dropped", id: "w" }).play().pending, []);
});

test("unsent request keeps its reason", () => {
  const request = { action: "message" as const, args: { content: "long", mode: "queue" as const } };
  const sending = new FrameScript().push({ local: "sent", id: "w", request, rejection: "too long" }).play().pending;
  assert.deepEqual(sending, [{ id: "w", request, rejection: "too long" }]);
});

test("command that wakes a session runs, prints and ends", () => {
  for (const rested of ["stopped", "failed"] as const) {
    const script = new FrameScript()
      .state(rested, "no reason")
      .addAction("user", "run", { command: "make" }, { item: "act-1" })
      .state("starting")
      .state("running")
      .push({ delta: "output", item: "act-1", offset: 0, content: "cc main.c\n" });
    assert.equal(rowsOf(script.play()).at(-1), "run running: cc main.c\n");
    script.addObservation("run", "cc main.c\ndone\n", RUN, { item: "act-1" }).state("idle");
    assert.equal(rowsOf(script.play()).at(-1), "run ok: cc main.c\ndone\n");
  }
});

test("restart closes the open rows of the previous agent", () => {
  const script = new FrameScript()
    .state("running")
    .push({ delta: "tool_input", item: "u", offset: 0, content: "{" })
    .addAction("agent", "run", { command: "make" }, { item: "t" })
    .addObservation("interrupted", "", { what: "the turn", stopped_ms: 320, rung: "restart_agent", partial: false })
    .state("starting");
  check(script, ["run stopped: ", "quiet: Interrupted the turn in 320 ms."]);
});

test("turn ends while a user's command still runs", () => {
  const script = new FrameScript()
    .state("running")
    .addAction("user", "run", { command: "make" }, { item: "mine" })
    .addAction("agent", "run", { command: "ls" }, { item: "its" })
    .push({ delta: "output", item: "mine", offset: 0, content: "cc" })
    .push({ delta: "text", item: "t", offset: 0, content: "Half a" })
    .push({ delta: "tool_input", item: "w", offset: 0, content: "{" });
  assert.equal(activityOf(script.play()).text, "Preparing the next step");
  const over = script.state("running", undefined, { turn_over: true }).play();
  assert.deepEqual(rowsOf(over), ["run running: cc", "run stopped: ", "text partial: Half a"]);
  assert.deepEqual([over.agentState, activityOf(over).text, activityOf(over).code], ["running", "Running", "make"]);
  const ended = script.addObservation("run", "cc done", { command: "make", exit_code: 0, duration_ms: 1 }, { item: "mine" }).state("idle").play();
  assert.deepEqual(rowsOf(ended)[0], "run ok: cc done");
});

test("work paused mid-turn can be interrupted", () => {
  const script = new FrameScript().addAction("agent", "run", { command: "make" }, { item: "r" }).state("paused");
  assert.equal(isInterruptible(script.play()), true);
  assert.equal(isInterruptible(new FrameScript().state("paused").play()), false);
  assert.equal(isInterruptible(new FrameScript().state("running").play()), true);
});

test("server problem is shown until the next event", () => {
  const full = { error: { code: "journal_unavailable", message: "no space" } };
  const script = new FrameScript().addObservation("message", "Hi", {}).push({ status: "synced", seq: 1 }).push(full);
  assert.equal(script.play().problem, "no space");
  assert.equal(script.addObservation("message", "There is room again.", {}).play().problem, null);
  assert.equal(script.push(full).push(hello(2)).play().problem, null);
});

test("truncated text links to the whole on this server only", () => {
  const cut = (href: string) => new FrameScript().addObservation("message", "…", { truncated: { bytes: 100_000, href } } as never).play().rows[0];
  assert.deepEqual((cut("/api/sessions/1/contents/2") as TextRow).truncated, { bytes: 100_000, href: "/api/sessions/1/contents/2" });
  assert.deepEqual((cut("https://evil.test/") as TextRow).truncated, { bytes: 100_000, href: undefined });
});

test("message wakes a resting session but waits while paused mid-turn", () => {
  const resting = new FrameScript().state("running").state("idle").state("paused", "nothing happened for 30 minutes").play();
  assert.deepEqual([isInterruptible(resting), isBusy(resting), isResumable(resting)], [false, false, true]);
  assert.equal(activityOf(resting).text, "Paused: nothing happened for 30 minutes");
  const frozen = new FrameScript().state("running").state("paused").play();
  assert.deepEqual([isInterruptible(frozen), isBusy(frozen), isResumable(frozen)], [true, true, true]);
  // Paused elsewhere while the connection was lost.
  const back = new FrameScript().state("running").push({ status: "hello", session: null, last_seq: 2, state: "paused" }).state("paused");
  assert.equal(isInterruptible(back.play()), true);
});

test("approval request stays until answered in any tab", () => {
  const script = new FrameScript().addObservation("confirm", "it deletes files", {
    request: "q",
    action: "rm -r build",
    risk: { level: "high" },
    options: ["allow", "deny"],
  });
  script.state("awaiting_confirmation");
  assert.equal(script.play().approvals[0]?.action, "rm -r build");
  script.addAction("user", "confirm", { request: "q", decision: "deny", reason: "not yet" });
  const answered = script.addObservation("confirmed", "", { request: "q", decision: "deny" }).play();
  assert.deepEqual(answered.approvals, []);
  const row = answered.rows.at(-1);
  assert.ok(row?.kind === "notice");
  assert.deepEqual([row.text, row.detail], ["Denied: not yet", "rm -r build"]);
});

test("lost sandbox shows its exit code, its last output and the next step", () => {
  const told = (extras: Partial<ObservationExtras["sandbox"]>, expected: string) =>
    check(new FrameScript().addObservation("sandbox", "", { phase: "lost", ...extras }), [`bad: ${expected}`]);
  told({ exit_code: 137, stderr_tail: "Killed" }, `The sandbox was killed (SIGKILL, exit code 137).${NEXT} (Killed)`);
  told({ exit_code: 137, out_of_memory: true }, `The sandbox ran out of memory and was killed (exit code 137).${NEXT}`);
  told({ out_of_memory: true }, `The sandbox ran out of memory and was killed.${NEXT}`);
  told({ exit_code: 3 }, `The sandbox died with exit code 3.${NEXT}`);
  told({ exit_code: null as never }, `The sandbox is gone.${NEXT}`);
});

test("work cut by a lost sandbox is marked as cut, not as interrupted", () => {
  const receipt = { what: "the turn", stopped_ms: 0, rung: "sandbox" as const, partial: false };
  const dies = () =>
    new FrameScript()
      .state("running")
      .addAction("agent", "run", { command: "make" }, { item: "t" })
      .addAction("user", "run", { command: "ls" }, { item: "u" })
      .addObservation("sandbox", "", { phase: "lost", exit_code: 3 })
      .addObservation("error", "cc main.c", { code: "cut", detail: "the command was cut short" }, { item: "u" });
  const dead = `bad: The sandbox died with exit code 3.${NEXT}`;
  check(dies().addObservation("interrupted", "", receipt, { cause: 4 }), ["run cut: ", "run cut: cc main.c", dead]);
  // An interrupt was requested, and the sandbox went away during it.
  const asked = dies().addObservation("interrupted", "", receipt, { cause: 3 });
  check(asked, ["run stopped: ", "run cut: cc main.c", dead, "quiet: Interrupted the turn in 0 ms."]);
});

test("command in a receipt is set as code, including its backticks", () => {
  const named = (what: string) => {
    const row = new FrameScript().addObservation("interrupted", "", { what, stopped_ms: 6, rung: "cancel", partial: false }).play().rows[0];
    return row?.kind === "notice" ? row.code : null;
  };
  assert.equal(named("the command `sleep 30`"), "sleep 30");
  assert.equal(named("the turn and the command `echo `date``"), "echo `date`");
  assert.equal(named("the model's answer"), undefined);
});

test("kinds of a newer server are harmless", () => {
  const newer = (frame: object) => frame as never;
  check(
    new FrameScript()
      .addAction("agent", "search" as never, { query: "x" } as never, { item: "s" })
      .addObservation("search" as never, "3 hits", {} as never, { item: "s" })
      .addObservation("constructor" as never, "", {} as never)
      .push(newer({ status: "weather" }))
      .push(newer({ delta: "smell", item: "n", offset: 0, content: "?" }))
      .push(newer({})),
    ["search ok: 3 hits"],
  );
});

test("agent cannot send events reserved for the server or the user", () => {
  const said = (what: object) => ({ seq: 1, at: "2026-01-01T00:00:00.000Z", source: "agent", ...what }) as never;
  const before = new FrameScript().state("running").play();
  const check = (what: object, rows: string[]) => {
    const after = reduce(before, [said({ seq: 2, content: "", extras: {}, ...what })]);
    assert.deepEqual(rowsOf(after), rows);
    assert.deepEqual({ ...after, rows: before.rows, lastSeq: 1, lastAt: before.lastAt, announcements: before.announcements }, before);
  };
  check({ observation: "agent_state_changed", extras: { agent_state: "ended", since: "" } }, []);
  check({ observation: "queue", extras: { items: [{ item: "a", content: "b" }] } }, []);
  check({ observation: "confirmed", extras: { request: "r", decision: "allow" }, message: "Decided." }, ["quiet: Decided."]);
  check({ action: "message", args: { content: "as if a person had said it" } }, ["message (unreadable) running: "]);
  check({ observation: "new", local: "refused", why: "no_such_session" }, []);
  check({ observation: "new", local: "rewound" }, []);
  check({ observation: "new", status: "hello", session: { id: "s2", title: "forged" } }, []);
  check({ observation: "new", delta: "text", item: "x", offset: 0, content: "forged" }, []);
});

test("malformed event is shown plainly", () => {
  const strange = { items: 5 } as never;
  const script = new FrameScript()
    .addObservation("queue", "", strange)
    .addObservation("plan", { a: 1 } as never, strange)
    .addObservation("usage", "", null as never)
    .addObservation("confirm", "", { request: "q", action: "x", risk: { level: "low" }, options: [{}] } as never)
    .addAction("agent", "run", { command: ["ls"] } as never, { item: "r" })
    .addObservation("run", { deep: true } as never, [] as never, { item: "r" });
  check(script, ['run (unreadable) ok: {"deep":true}']);
  const { queue, approvals, usage } = script.play();
  assert.deepEqual([queue, approvals, usage], [[], [], null]);
});

test("state line", () => {
  const line = (script: FrameScript, expected: string) => {
    const { text, code } = activityOf(script.play());
    assert.equal(code ? `${text} ${code}` : text, expected);
  };
  line(new FrameScript(), "Connecting");
  line(new FrameScript().state("starting").addObservation("sandbox", "", { phase: "creating" }), "Creating the sandbox");
  const running = () => new FrameScript().addObservation("sandbox", "", { phase: "ready" }).state("running");
  line(running(), "Working");
  line(running().push({ delta: "thinking", item: "t", offset: 0, content: "hm" }), "Thinking");
  line(running().push({ delta: "text", item: "t", offset: 0, content: "So" }), "Writing");
  line(running().addAction("agent", "run", { command: "cargo test\n--all" }, { item: "r" }), "Running cargo test");
  line(running().addAction("agent", "run", { command: "ls" }, { item: "r" }).addObservation("run", "", RUN, { item: "r" }), "Working");
  line(running().state("failed", "the agent exited four times"), "Failed: the agent exited four times");
});

function hello(last_seq: number) {
  return { status: "hello" as const, session: null, last_seq, state: null };
}

test("call that the model never completed disappears, also for late clients", () => {
  const half = { delta: "tool_input", item: "t", offset: 0, content: '{"comm' } as const;
  const cut = { code: "cut", detail: "it broke off" };
  check(new FrameScript().push(half).addObservation("error", "", cut, { item: "t" }).addObservation("message", "Again.", {}, { item: "a" }), ["text: Again."]);
  check(new FrameScript().addObservation("error", "", cut, { item: "t" }).addObservation("message", "Again.", {}, { item: "a" }), ["text: Again."]);
});

test("turn that ends during a pause leaves nothing to interrupt", () => {
  const over = new FrameScript().state("running").state("paused").state("paused", undefined, { turn_over: true }).play();
  assert.equal(isInterruptible(over), false);
  assert.equal(isResumable(over), true);
});
