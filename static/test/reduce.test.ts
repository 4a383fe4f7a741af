import assert from "node:assert/strict";
import { test } from "node:test";
import { activity, isOccupied, isResumable, isStoppable } from "../src/state/activity";
import { reduce } from "../src/state/reduce";
import { empty } from "../src/state/session";
import type { TextRow } from "../src/state/rows";
import type { Observations } from "../src/wire/event";
import { rowsOf, Script } from "./frames";

function check(script: Script, expected: string[]): void {
  assert.deepEqual(rowsOf(script.play()), expected);
  // A batch or one frame at a time: the same screen.
  const oneByOne = script.frames.reduce((state, frame) => reduce(state, [frame]), empty);
  assert.deepEqual(oneByOne, script.play());
}

/** What is to be done when a sandbox is gone. */
const NEXT = " The next message starts a fresh sandbox.";

const RUN = { command: "ls", exit_code: 0, duration_ms: 12 };

test("text streams, and the durable event has the last word", () => {
  const script = new Script()
    .push({ delta: "text", item: "a", offset: 0, content: "Hel" })
    .push({ delta: "text", item: "a", offset: 3, content: "lo" });
  check(script, ["text open: Hello"]);
  check(script.see("message", "Hello!", {}, { item: "a" }), ["text: Hello!"]);
  check(script.push({ delta: "text", item: "a", offset: 5, content: " late" }), ["text: Hello!"]);
});

test("offsets count bytes; 0 starts again; a piece without its beginning is left out", () => {
  check(
    new Script()
      .push({ delta: "text", item: "a", offset: 0, content: "Grüße" })
      .push({ delta: "text", item: "a", offset: 7, content: " 🎭" })
      .push({ delta: "text", item: "a", offset: 12, content: "!" }),
    ["text open: Grüße 🎭!"],
  );
  check(
    new Script()
      .push({ delta: "text", item: "a", offset: 0, content: "old" })
      .push({ delta: "text", item: "a", offset: 0, content: "new" }),
    ["text open: new"],
  );
  check(
    new Script()
      .push({ delta: "text", item: "a", offset: 0, content: "ab" })
      .push({ delta: "text", item: "b", offset: 4, content: "headless" }),
    ["text open: ab"],
  );
  // Who comes late to a long item is sent its end, as if it began there.
  check(
    new Script()
      .push({ delta: "text", item: "a", offset: 0, content: "…the énd" })
      .push({ delta: "text", item: "a", offset: 900_000, content: " and more" })
      .push({ delta: "text", item: "a", offset: 900_004, content: "! on" })
      .push({ delta: "text", item: "a", offset: 900_008, content: "." }),
    ["text open: …the énd and! on."],
  );
  check(
    new Script()
      .push({ delta: "text", item: "a", offset: 0, content: "abcd" })
      .push({ delta: "text", item: "a", offset: 2, content: "XY" }),
    ["text open: abXY"],
  );
});

test("a tool call is written, runs, prints, and ends in one row", () => {
  const script = new Script().push({ delta: "tool_input", item: "t", offset: 0, content: '{"comm' });
  check(script, ["unwritten running: "]);
  script.act("agent", "run", { command: "ls" }, { item: "t" });
  script.push({ delta: "output", item: "t", offset: 0, content: "LICENSE\n" });
  check(script, ["run running: LICENSE\n"]);
  check(script.see("run", "LICENSE\nsrc\n", RUN, { item: "t" }), ["run ok: LICENSE\nsrc\n"]);
});

test("a result finds its call by its cause where it has no item", () => {
  check(new Script().act("user", "run", { command: "ls" }).see("run", "src\n", RUN, { cause: 1 }), ["run ok: src\n"]);
});

test("how a command ended", () => {
  const ended = (extras: Partial<typeof RUN> & { timed_out?: boolean }, expected: string) =>
    check(
      new Script()
        .act("agent", "run", { command: "ls" }, { item: "t" })
        .see("run", "", { command: "ls", duration_ms: 1, ...extras }, { item: "t" }),
      [expected],
    );
  ended({ exit_code: 0 }, "run ok: ");
  ended({ exit_code: 2 }, "run failed: ");
  ended({}, "run stopped: ");
  ended({ timed_out: true }, "run failed: ");
});

test("an interrupt closes what was open, and leaves its receipt", () => {
  const script = new Script()
    .act("agent", "run", { command: "sleep 99" }, { item: "t" })
    .push({ delta: "output", item: "t", offset: 0, content: "tick\n" })
    .push({ delta: "text", item: "a", offset: 0, content: "Half a sen" })
    .push({ delta: "tool_input", item: "u", offset: 0, content: "{" })
    .see("interrupted", "", { what: "the command sleep 99", stopped_ms: 320, rung: "kill_processes", partial: false });
  check(script, ["run stopped: tick\n", "text partial: Half a sen", "quiet: Stopped the command sleep 99 in 320 ms."]);
});

test("a message that waited stands where the agent read it", () => {
  const queued = { item: "m", content: "and a README" };
  const script = new Script()
    .act("user", "start", { task: "a script" })
    .see("chat", "a script", {}, { cause: 1 })
    .act("user", "message", { content: "and a README" }, { item: "m" })
    .see("queue", "", { items: [queued] })
    .see("message", "Done.", {}, { item: "a" });
  check(script, ["delivered user: a script", "queued user: and a README", "text: Done."]);
  assert.deepEqual(script.play().queue, [queued]);
  script.see("queue", "", { items: [] });
  check(script, ["delivered user: a script", "withdrawn user: and a README", "text: Done."]);
  script.see("chat", "and a short README", {}, { item: "m", cause: 3 });
  check(script, ["delivered user: a script", "text: Done.", "delivered user: and a short README"]);
});

test("replayed events that the screen already holds change nothing", () => {
  const script = new Script().act("user", "start", { task: "a" }).see("message", "b", {}, { item: "x" });
  const once = script.play();
  assert.deepEqual(script.play(once), once);
});

test("a reconnect says what it brought", () => {
  const script = new Script().push({ local: "opened" }).push(hello(0)).act("user", "start", { task: "a" });
  script.push({ status: "synced", seq: 1 });
  assert.equal(script.play().caughtUp, null);
  script.push({ local: "lost", retryAt: 5 });
  assert.deepEqual(script.play().connection, { phase: "lost", retryAt: 5 });
  assert.deepEqual(rowsOf(script.play()), ["sent user: a"]);
  script.push({ local: "opened" }).push(hello(3)).see("message", "b", {}).see("message", "c", {});
  script.push({ status: "synced", seq: 3 });
  assert.equal(script.play().caughtUp?.events, 2);
  assert.deepEqual(script.play().connection, { phase: "live" });
});

test("a screen reader hears what is finished once, and nothing of the past", () => {
  const spoken = (script: Script) => script.play().spoken.map(({ text }) => text);
  const script = new Script().push({ local: "opened" }).push(hello(0)).see("message", "of yesterday", {});
  script.push({ status: "synced", seq: 1 });
  assert.deepEqual(spoken(script), []);
  script.push({ delta: "text", item: "a", offset: 0, content: "Hel" });
  assert.deepEqual(spoken(script), []);
  script.see("message", "Hello", {}, { item: "a" });
  assert.deepEqual(spoken(script), ["Hello"]);
  const again = reduce(script.play(), script.frames.filter((frame) => "seq" in frame && !("status" in frame)));
  assert.deepEqual(again.spoken.map(({ text }) => text), ["Hello"]);
  script.push({ local: "lost", retryAt: 0 }).push({ local: "opened" }).push(hello(2));
  script.see("message", "while you were away", {}).push({ status: "synced", seq: 3 });
  assert.deepEqual(spoken(script), ["Hello", "while you were away"]);
});

test("a death and what it means are one notice; a plan takes the place of the one before", () => {
  const why = "the sandbox died with exit code 137";
  const died = new Script().see("sandbox", why, { phase: "lost", exit_code: 137 }).state("failed", why);
  check(died, [`bad: The sandbox was killed (SIGKILL, exit code 137).${NEXT}`]);
  assert.equal(activity(died.play()).text, "Failed", "why it has is told");
  check(new Script().see("sandbox", why, { phase: "lost", exit_code: 137 }).state("failed", "no image"), [
    `bad: The sandbox was killed (SIGKILL, exit code 137).${NEXT}`,
    "bad: Failed: no image",
  ]);
  check(new Script().state("failed", "no image"), ["bad: Failed: no image"]);
  const plans = new Script().see("plan", "- [ ] a", { path: "P", items: [] }).see("plan", "- [x] a", { path: "P", items: [] });
  assert.deepEqual(plans.play().rows.map((row) => row.kind === "plan" && row.superseded), [true, false]);
  assert.equal(plans.play().plan?.markdown, "- [x] a");
});

test("a wish is held until the server has taken it", () => {
  const wish = { action: "message" as const, args: { content: "go on", mode: "queue" as const } };
  const script = new Script().push({ local: "sent", id: "w", wish });
  assert.deepEqual(script.play().sending, [{ id: "w", wish }]);
  script.push({ status: "accepted", id: "w", seq: 1 });
  assert.deepEqual(script.play().sending, [{ id: "w", wish, seq: 1 }], "its event has not come yet");
  script.act("user", "message", { content: "go on" });
  assert.deepEqual(script.play().sending, []);
});

test("a wish that is refused says why until it is dropped", () => {
  const script = new Script()
    .push({ local: "sent", id: "w", wish: { action: "pause" } })
    .push({ error: { code: "conflict", message: "nothing is running" }, id: "w" });
  assert.equal(script.play().sending[0]?.refusal, "nothing is running");
  assert.deepEqual(script.push({ local: "dropped", id: "w" }).play().sending, []);
});

test("a wish that was not even sent says why, too", () => {
  const wish = { action: "message" as const, args: { content: "long", mode: "queue" as const } };
  const sending = new Script().push({ local: "sent", id: "w", wish, refusal: "too long" }).play().sending;
  assert.deepEqual(sending, [{ id: "w", wish, refusal: "too long" }]);
});

test("a command that wakes a session runs, prints, and ends", () => {
  for (const rested of ["stopped", "failed"] as const) {
    const script = new Script()
      .state(rested, "no reason")
      .act("user", "run", { command: "make" }, { item: "act-1" })
      .state("starting")
      .state("running")
      .push({ delta: "output", item: "act-1", offset: 0, content: "cc main.c\n" });
    assert.equal(rowsOf(script.play()).at(-1), "run running: cc main.c\n");
    script.see("run", "cc main.c\ndone\n", RUN, { item: "act-1" }).state("idle");
    assert.equal(rowsOf(script.play()).at(-1), "run ok: cc main.c\ndone\n");
  }
});

test("what an agent was taken away from is closed when the next one starts", () => {
  const script = new Script()
    .state("running")
    .push({ delta: "tool_input", item: "u", offset: 0, content: "{" })
    .act("agent", "run", { command: "make" }, { item: "t" })
    .see("interrupted", "", { what: "the turn", stopped_ms: 320, rung: "restart_agent", partial: false })
    .state("starting");
  check(script, ["run stopped: ", "quiet: Stopped the turn in 320 ms."]);
});

test("a turn is over while a command of the person's own still runs", () => {
  const script = new Script()
    .state("running")
    .act("user", "run", { command: "make" }, { item: "mine" })
    .act("agent", "run", { command: "ls" }, { item: "its" })
    .push({ delta: "output", item: "mine", offset: 0, content: "cc" })
    .push({ delta: "text", item: "t", offset: 0, content: "Half a" })
    .push({ delta: "tool_input", item: "w", offset: 0, content: "{" });
  assert.equal(activity(script.play()).text, "Preparing the next step");
  const over = script.state("running", undefined, { turn_over: true }).play();
  assert.deepEqual(rowsOf(over), ["run running: cc", "run stopped: ", "text partial: Half a"]);
  assert.deepEqual([over.agentState, activity(over).text, activity(over).code], ["running", "Running", "make"]);
  const ended = script.see("run", "cc done", { command: "make", exit_code: 0, duration_ms: 1 }, { item: "mine" }).state("idle").play();
  assert.deepEqual(rowsOf(ended)[0], "run ok: cc done");
});

test("what is paused in the middle can be stopped", () => {
  const script = new Script().act("agent", "run", { command: "make" }, { item: "r" }).state("paused");
  assert.equal(isStoppable(script.play()), true);
  assert.equal(isStoppable(new Script().state("paused").play()), false);
  assert.equal(isStoppable(new Script().state("running").play()), true);
});

test("what the server cannot do is said until something happens again", () => {
  const full = { error: { code: "journal_unavailable", message: "no space" } };
  const script = new Script().see("message", "Hi", {}).push({ status: "synced", seq: 1 }).push(full);
  assert.equal(script.play().trouble, "no space");
  assert.equal(script.see("message", "There is room again.", {}).play().trouble, null);
  assert.equal(script.push(full).push(hello(2)).play().trouble, null);
});

test("of a text that is shown in part it is said where the whole is, if that is here", () => {
  const cut = (href: string) => new Script().see("message", "…", { truncated: { bytes: 100_000, href } } as never).play().rows[0];
  assert.deepEqual((cut("/api/sessions/1/contents/2") as TextRow).truncated, { bytes: 100_000, href: "/api/sessions/1/contents/2" });
  assert.deepEqual((cut("https://evil.test/") as TextRow).truncated, { bytes: 100_000, href: undefined });
});

test("what rests is woken by a message; what is frozen in the middle waits to be resumed", () => {
  const resting = new Script().state("running").state("idle").state("paused", "nothing happened for 30 minutes").play();
  assert.deepEqual([isStoppable(resting), isOccupied(resting), isResumable(resting)], [false, false, true]);
  assert.equal(activity(resting).text, "Paused: nothing happened for 30 minutes");
  const frozen = new Script().state("running").state("paused").play();
  assert.deepEqual([isStoppable(frozen), isOccupied(frozen), isResumable(frozen)], [true, true, true]);
  // Paused by somebody else while the connection was lost.
  const back = new Script().state("running").push({ status: "hello", session: null, last_seq: 2, state: "paused" }).state("paused");
  assert.equal(isStoppable(back.play()), true);
});

test("a question is asked until it is answered, here or elsewhere", () => {
  const script = new Script().see("confirm", "it deletes files", {
    request: "q",
    action: "rm -r build",
    risk: "high",
    options: ["allow", "deny"],
  });
  script.state("awaiting_confirmation");
  assert.equal(script.play().question?.action, "rm -r build");
  script.act("user", "confirm", { request: "q", decision: "deny", reason: "not yet" });
  const answered = script.see("confirmed", "", { request: "q", decision: "deny" }).play();
  assert.equal(answered.question, null);
  const row = answered.rows.at(-1);
  assert.ok(row?.kind === "notice");
  assert.deepEqual([row.text, row.detail], ["You denied it: not yet", "rm -r build"]);
});

test("a sandbox that dies is told with its code, its last words, and what to do next", () => {
  const told = (extras: Partial<Observations["sandbox"]>, expected: string) =>
    check(new Script().see("sandbox", "", { phase: "lost", ...extras }), [`bad: ${expected}`]);
  told({ exit_code: 137, stderr_tail: "Killed" }, `The sandbox was killed (SIGKILL, exit code 137).${NEXT} (Killed)`);
  told({ exit_code: 137, out_of_memory: true }, `The sandbox ran out of memory and was killed (exit code 137).${NEXT}`);
  told({ out_of_memory: true }, `The sandbox ran out of memory and was killed.${NEXT}`);
  told({ exit_code: 3 }, `The sandbox died with exit code 3.${NEXT}`);
  told({ exit_code: null as never }, `The sandbox is gone.${NEXT}`);
});

test("what a death cut short says so, and is no stop that anybody asked for", () => {
  const receipt = { what: "the turn", stopped_ms: 0, rung: "sandbox", partial: false };
  const dies = () =>
    new Script()
      .state("running")
      .act("agent", "run", { command: "make" }, { item: "t" })
      .act("user", "run", { command: "ls" }, { item: "u" })
      .see("sandbox", "", { phase: "lost", exit_code: 3 })
      .see("error", "cc main.c", { code: "cut", detail: "the command was cut short" }, { item: "u" });
  const dead = `bad: The sandbox died with exit code 3.${NEXT}`;
  check(dies().see("interrupted", "", receipt, { cause: 4 }), ["run cut: ", "run cut: cc main.c", dead]);
  // Somebody had asked, and the sandbox went away under it.
  const asked = dies().see("interrupted", "", receipt, { cause: 3 });
  check(asked, ["run stopped: ", "run cut: cc main.c", dead, "quiet: Stopped the turn in 0 ms."]);
});

test("the command that a receipt names is set as code, with whatever backticks it has", () => {
  const named = (what: string) => {
    const row = new Script().see("interrupted", "", { what, stopped_ms: 6, rung: "cancel", partial: false }).play().rows[0];
    return row?.kind === "notice" ? row.code : null;
  };
  assert.equal(named("the command `sleep 30`"), "sleep 30");
  assert.equal(named("the turn and the command `echo `date``"), "echo `date`");
  assert.equal(named("the model's answer"), undefined);
});

test("kinds of a newer server do no harm", () => {
  const newer = (frame: object) => frame as never;
  check(
    new Script()
      .act("agent", "search" as never, { query: "x" } as never, { item: "s" })
      .see("search" as never, "3 hits", {} as never, { item: "s" })
      .see("constructor" as never, "", {} as never)
      .push(newer({ status: "weather" }))
      .push(newer({ delta: "smell", item: "n", offset: 0, content: "?" }))
      .push(newer({})),
    ["search ok: 3 hits"],
  );
});

test("an agent is not believed what only the server or a person can say", () => {
  const said = (what: object) => ({ seq: 1, at: "2026-01-01T00:00:00.000Z", source: "agent", ...what }) as never;
  const before = new Script().state("running").play();
  const check = (what: object, rows: string[]) => {
    const after = reduce(before, [said({ seq: 2, content: "", extras: {}, ...what })]);
    assert.deepEqual(rowsOf(after), rows);
    assert.deepEqual({ ...after, rows: before.rows, lastSeq: 1, lastAt: before.lastAt, spoken: before.spoken }, before);
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

test("an event in a strange shape is shown plainly, and the page lives on", () => {
  const strange = { items: 5 } as never;
  const script = new Script()
    .see("queue", "", strange)
    .see("plan", { a: 1 } as never, strange)
    .see("usage", "", null as never)
    .see("confirm", "", { request: "q", action: "x", risk: "low", options: [{}] } as never)
    .act("agent", "run", { command: ["ls"] } as never, { item: "r" })
    .see("run", { deep: true } as never, [] as never, { item: "r" });
  check(script, ['run (unreadable) ok: {"deep":true}']);
  const { queue, question, usage } = script.play();
  assert.deepEqual([queue, question, usage], [[], null, null]);
});

test("the state line", () => {
  const line = (script: Script, expected: string) => {
    const { text, code } = activity(script.play());
    assert.equal(code ? `${text} ${code}` : text, expected);
  };
  line(new Script(), "Connecting");
  line(new Script().state("starting").see("sandbox", "", { phase: "creating" }), "Creating the sandbox");
  const running = () => new Script().see("sandbox", "", { phase: "ready" }).state("running");
  line(running(), "Working");
  line(running().push({ delta: "thinking", item: "t", offset: 0, content: "hm" }), "Thinking");
  line(running().push({ delta: "text", item: "t", offset: 0, content: "So" }), "Writing");
  line(running().act("agent", "run", { command: "cargo test\n--all" }, { item: "r" }), "Running cargo test");
  line(running().act("agent", "run", { command: "ls" }, { item: "r" }).see("run", "", RUN, { item: "r" }), "Working");
  line(running().state("failed", "the agent exited four times"), "Failed: the agent exited four times");
});

function hello(last_seq: number) {
  return { status: "hello" as const, session: null, last_seq, state: null };
}

test("a call that its model did not come to make is nothing, also to who comes later", () => {
  const half = { delta: "tool_input", item: "t", offset: 0, content: '{"comm' } as const;
  const cut = { code: "cut", detail: "it broke off" };
  check(new Script().push(half).see("error", "", cut, { item: "t" }).see("message", "Again.", {}, { item: "a" }), ["text: Again."]);
  check(new Script().see("error", "", cut, { item: "t" }).see("message", "Again.", {}, { item: "a" }), ["text: Again."]);
});

test("a turn that ends as it is paused leaves nothing to be stopped", () => {
  const over = new Script().state("running").state("paused").state("paused", undefined, { turn_over: true }).play();
  assert.equal(isStoppable(over), false);
  assert.equal(isResumable(over), true);
});
