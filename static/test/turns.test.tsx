// Turns: their ends, durations without pauses, costs and retries.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { Chat } from "../src/components/Chat";
import { StateLine } from "../src/components/StateLine";
import { showSession } from "../src/state/currentSession";
import { retriableTurn } from "../src/state/retry";
import type { ToolRow, TurnRow } from "../src/state/rows";
import type { ScreenState } from "../src/state/screenState";
import type { UsageExtras } from "../src/wire/event";
import { FrameScript } from "./frameScript";
import { press, renderText, root, settled, TestSession } from "./testSession";

afterEach(() => render(null, root));

const turnsOf = (state: ScreenState) => state.rows.filter((row): row is TurnRow => row.kind === "turn");

/** Events of one turn, one second apart. The chat is the second, the state the third. */
function begun(text = "Build it", attachments: string[] = []): FrameScript {
  const script = new FrameScript().addAction("user", "message", { content: text, mode: "queue", attachments });
  return script.addObservation("chat", text, { turn: "turn-2", attachments }, { cause: 1 }).state("running");
}

const failure = (script: FrameScript) => script.addObservation("error", "", { code: "model_error", detail: "busy" }).state("idle", "failed");

const usage = (cost_usd: number | null, more: Partial<UsageExtras> = {}): UsageExtras => ({
  model: "m", input_tokens: 1, output_tokens: 1, cost_usd, total_input_tokens: 1, total_output_tokens: 1, total_cost_usd: cost_usd,
  context_used: 1, context_limit: null, ...more,
});

test("outcome of a turn", () => {
  const check = (end: (script: FrameScript) => FrameScript, outcomes: string[]) =>
    assert.deepEqual(turnsOf(end(begun()).play()).map((row) => row.outcome), outcomes, end.toString());
  const receipt = { what: "the turn", stopped_ms: 1, rung: "cancel", partial: false } as const;
  check((script) => script, []);
  check((script) => script.state("idle"), ["finished"]);
  check(failure, ["failed"]);
  check((script) => script.addObservation("error", "", { code: "model_error", detail: "busy" }).state("idle"), ["failed"]);
  check((script) => script.addObservation("interrupted", "", receipt).state("idle"), ["interrupted"]);
  check((script) => script.state("idle", "budget"), ["budget"]);
  check((script) => script.state("failed", "the sandbox is gone"), ["failed"]);
  check((script) => script.state("paused"), []);
  check((script) => script.state("paused", undefined, { turn_over: true }).state("idle"), ["finished"]);
  check((script) => script.state("awaiting_confirmation").state("running").state("idle"), ["finished"]);
  const lost = (script: FrameScript) => {
    script.addObservation("sandbox", "the sandbox is gone", { phase: "lost" });
    return script.addObservation("interrupted", "", { ...receipt, rung: "sandbox" }, { cause: 4 }).state("failed", "the sandbox is gone");
  };
  check(lost, ["failed"]);
  check((script) => script.addObservation("error", "", { code: "x", detail: "odd" }).addObservation("message", "Well.", {}).state("idle"), ["finished"]);
  check((script) => script.addObservation("error", "", { code: "provider_retrying", detail: "busy" }).state("idle"), ["finished"]);
});

test("next turn, a steered message and a user's own command", () => {
  const script = begun().addAction("user", "message", { content: "faster", mode: "steer" }, { item: "s" });
  script.addObservation("chat", "faster", { turn: "turn-2" }, { item: "s" });
  assert.equal(turnsOf(script.play()).length, 0, "a steered message joins the turn");
  script.addObservation("error", "", { code: "model_error", detail: "busy" }).addObservation("chat", "next", { turn: "turn-4" });
  assert.deepEqual(turnsOf(script.play()).map((row) => row.outcome), ["failed"]);
  script.state("idle").addAction("user", "run", { command: "ls" }, { item: "r" }).state("running").state("idle");
  assert.deepEqual(turnsOf(script.play()).map((row) => row.outcome), ["failed", "finished"]);
});

test("durations leave out pauses", () => {
  const script = begun().addAction("agent", "read", { path: "a" }, { item: "r" }).state("paused").state("running");
  script.addObservation("read", "text", { path: "a" }, { item: "r" }).state("idle");
  const state = script.play();
  // Events are one second apart: the call from 4 to 7, the pause from 5 to 6, the turn from 2 to 8.
  assert.equal((state.rows.find((row) => row.kind === "tool") as ToolRow).end?.durationMs, 2000);
  assert.deepEqual(turnsOf(state).map((row) => row.durationMs), [5000]);
  const stopped = begun().state("paused").state("stopped").play();
  assert.deepEqual(turnsOf(stopped).map((row) => row.durationMs), [2000]);
});

test("cost of a turn is that of its calls, also of one reported late", () => {
  const script = begun().addObservation("usage", "", usage(0.25)).state("idle").addObservation("usage", "", usage(0.5));
  assert.deepEqual(turnsOf(script.play()).map((row) => row.cost), [{ usd: 0.75, isComplete: true, isEstimated: false }]);
  const unknown = begun().addObservation("usage", "", usage(null, { estimated: true })).state("idle");
  assert.deepEqual(turnsOf(unknown.play()).map((row) => row.cost), [{ usd: 0, isComplete: false, isEstimated: true }]);
  assert.deepEqual(turnsOf(begun().state("idle").play()).map((row) => row.cost), [null]);
});

test("final text is the newest message or the report", () => {
  const script = begun().addObservation("message", "First.", {}, { item: "a" }).addObservation("message", "Last.", {}, { item: "b" });
  assert.deepEqual(turnsOf(script.state("idle").play()).map((row) => row.answer), ["Last."]);
  const report = begun().addObservation("message", "First.", {}).addAction("agent", "finish", { message: "Built." }).state("idle");
  assert.deepEqual(turnsOf(report.play()).map((row) => row.answer), ["Built."]);
});

const shown = (script: FrameScript) => {
  const session = new TestSession();
  const hide = showSession(session.live);
  session.listener.opened();
  session.receive({ status: "hello", session: null, last_seq: 0, state: null }, ...script.frames.splice(0), { status: "synced", seq: 9 });
  return { session, hide };
};

test("Retry sends the same message with its files, once", async () => {
  const script = failure(begun("Build it", ["uploads/a.txt"]).addObservation("message", "I built half.", {}));
  const { session, hide } = shown(script);
  await renderText(<StateLine live={session.live} />);
  assert.equal(root.querySelector(".state-text")?.textContent, "Last turn failed");
  press("Retry");
  session.live.retry(session.live.state.peek().ended!.request);
  await settled();
  assert.deepEqual(session.sent.map((sent) => "args" in sent && sent.args), [{ content: "Build it", mode: "queue", attachments: ["uploads/a.txt"] }]);
  assert.equal(root.textContent?.includes("Retry"), false, "the message is on its way");
  const id = session.sent[0]!.id;
  session.receive({ status: "accepted", id, seq: 99 });
  await settled();
  assert.equal(root.textContent?.includes("Retry"), false, "its event has not arrived");
  hide();
});

test("Retry waits for the end of all work, and is absent while the server is away", () => {
  const live = (script: FrameScript) => script.push({ status: "synced", seq: 9 }).play();
  assert.equal(retriableTurn(live(begun())), null);
  assert.equal(retriableTurn(live(begun().state("idle")))?.outcome, "finished");
  assert.equal(retriableTurn(live(failure(begun()).state("running", "failed"))), null, "the user's own command runs");
  assert.equal(retriableTurn(live(failure(begun()).addAction("user", "message", { content: "again" }))), null);
  assert.equal(retriableTurn(live(failure(begun()).addObservation("queue", "", { items: [{ item: "m", content: "next" }] }))), null);
  assert.equal(retriableTurn(live(failure(begun())).connection.phase === "live" ? failure(begun()).push({ local: "lost", retryAt: 0 }).play() : failure(begun()).play()), null);
});

test("card has outcome, duration, cost, Copy and Retry, and only the last turn's has Retry", async (context) => {
  const copied: string[] = [];
  Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text: string) => copied.push(text) }, configurable: true });
  context.after(() => Reflect.deleteProperty(navigator, "clipboard"));
  const script = begun().addObservation("message", "Built.", {}).addObservation("usage", "", usage(0.25)).state("idle");
  script.addAction("user", "message", { content: "Test it" }).addObservation("chat", "Test it", { turn: "turn-4" }).state("running");
  const { session, hide } = shown(failure(script));
  await renderText(<Chat live={session.live} />);
  const cards = () => [...root.querySelectorAll(".turn")].map((card) => [...card.children].map((part) => part.textContent).join(" | "));
  assert.deepEqual(cards(), ["Finished | 4.0 s | $0.25 | Copy | Fork from here", "Failed | 3.0 s | Retry | Fork from here"]);
  press("Copy");
  await settled();
  assert.deepEqual(copied, ["Built."]);
  assert.match(cards()[0]!, /\| Copied \|/);
  hide();
});

test("recording offers no Retry", async () => {
  const session = new TestSession();
  session.live.rewind();
  const hide = showSession(session.live);
  session.play(failure(begun()));
  await renderText(<Chat live={session.live} />);
  assert.deepEqual([...root.querySelectorAll(".turn")].map((card) => card.textContent), ["Failed3.0 s"]);
  hide();
});

test("only a pause is resumed", () => {
  const texts = (script: FrameScript) => script.addAction("user", "resume", {}).play().rows.flatMap((row) => (row.kind === "notice" ? [row.text] : []));
  assert.deepEqual(texts(new FrameScript().addAction("user", "pause", {}).state("paused")), ["Paused", "Resumed"]);
  assert.deepEqual(texts(new FrameScript().state("stopped")), ["Sandbox stopped", "Starting the sandbox"]);
  assert.deepEqual(texts(new FrameScript().state("idle")), ["Continuing with the queue"]);
});
