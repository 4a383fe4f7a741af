// Content of the session header.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { SessionHeader } from "../src/components/SessionHeader";
import { showSession } from "../src/state/currentSession";
import { mergeSessions } from "../src/state/sessionList";
import type { Session } from "../src/wire/frame";
import { FrameScript, rowsOf } from "./frameScript";
import { root, renderText, settled, TestSession } from "./testSession";

let hide = () => {};
beforeEach(() => hide());
afterEach(() => render(null, root));

/** Renders the header after a model call with this usage. */
async function header(usage: { used: number; usd: number | null; model?: string }): Promise<string> {
  const testSession = new TestSession();
  hide = showSession(testSession.live);
  const { used, usd, model = "gpt-5" } = usage;
  const call = { model, input_tokens: used, output_tokens: 0, cost_usd: usd };
  const total = { total_input_tokens: used, total_output_tokens: 0, total_cost_usd: usd };
  testSession.play(new FrameScript().addObservation("usage", "", { ...call, ...total, context_used: used, context_limit: 1000 }));
  await renderText(<SessionHeader live={testSession.live} />);
  return root.querySelector(".taken")!.textContent!;
}
const meter = () => root.querySelector("[role=meter]");

test("zero figures are hidden", async () => {
  assert.equal(await header({ used: 0, usd: 0 }), "");
  assert.equal(meter(), null);
  assert.equal(await header({ used: 100, usd: 0 }), "100 tokens");
  assert.equal(await header({ used: 100, usd: null }), "100 tokensprice unknown");
  assert.equal(await header({ used: 100, usd: 0.25 }), "100 tokens$0.25");
});

test("call without a price does not lower the known cost", async () => {
  const call = { model: "gpt-5", input_tokens: 1, output_tokens: 0, total_input_tokens: 1, total_output_tokens: 0, context_used: 0, context_limit: null };
  const testSession = new TestSession();
  hide = showSession(testSession.live);
  const session = { id: "s1", title: "One", state: "idle", last_seq: 0, updated_at: "", created_at: "", budget_usd: 1 } as Session;
  const usage = { input_tokens: 1, output_tokens: 0 };
  const script = new FrameScript();
  testSession.receive({ status: "hello", session: { ...session, usage: { ...usage, cost_usd: 0.1 } }, last_seq: 0, state: "idle" });
  const says = async (event: { cost_usd: number | null; total_cost_usd: number | null; known_cost_usd?: number }) => {
    testSession.play(script.addObservation("usage", "", { ...call, ...event }));
    await renderText(<SessionHeader live={testSession.live} />);
    return [root.querySelector(".taken")!.lastElementChild!.textContent, meter()!.getAttribute("aria-label")];
  };
  assert.deepEqual(await says({ cost_usd: 0.5, total_cost_usd: 0.5 }), ["$0.50", "Budget: $0.50 of $1.00 spent"]);
  assert.deepEqual(await says({ cost_usd: null, total_cost_usd: null }), ["$0.50 + price unknown", "Budget: $0.50 + price unknown of $1.00 spent"]);
  assert.equal(root.querySelector(".taken")!.lastElementChild!.getAttribute("title"), "Some calls have no known price.");
  assert.equal((await says({ cost_usd: 0.1, total_cost_usd: null, known_cost_usd: 0.6 }))[0], "$0.60 + price unknown");
  mergeSessions([{ ...session, last_seq: 9, usage: { ...usage, cost_usd: null, known_cost_usd: 0.75 } }]);
  assert.equal((await says({ cost_usd: 0.1, total_cost_usd: null }))[0], "$0.75 + price unknown", "REST has the cost");
  mergeSessions([{ ...session, last_seq: 3, usage: { ...usage, cost_usd: 0.5 } }]);
  assert.equal((await says({ cost_usd: null, total_cost_usd: null }))[0], "$0.75 + price unknown", "a late answer is older");
});

test("context meter is always labelled, visibly from half full on", async () => {
  assert.doesNotMatch(await header({ used: 500, usd: 0 }), /Context/);
  assert.equal(meter()!.getAttribute("aria-label"), "Context: 500 of 1.0k tokens");
  assert.match(await header({ used: 501, usd: 0 }), /^Context/);
  assert.equal(root.querySelector(".nearly-full"), null);
  await header({ used: 900, usd: 0 });
  assert.ok(root.querySelector(".nearly-full"));
});

test("demo model is marked and explained", async () => {
  await header({ used: 1, usd: 0, model: "demo" });
  const model = root.querySelector(".model")!;
  assert.equal(model.textContent, "scripted demo");
  assert.match(model.getAttribute("aria-label")!, /scripted demo. Plays a script, no real model/);
});

test("estimated usage is marked and explained, also after exact usage", async () => {
  const call = { model: "gpt-5", input_tokens: 1, output_tokens: 0, total_input_tokens: 1, total_output_tokens: 0, context_used: 0, context_limit: null };
  const testSession = new TestSession();
  hide = showSession(testSession.live);
  const script = new FrameScript();
  const costs = async (usd: number, estimated?: boolean) => {
    testSession.play(script.addObservation("usage", "", { ...call, cost_usd: usd, total_cost_usd: usd, ...(estimated && { estimated }) }));
    await renderText(<SessionHeader live={testSession.live} />);
    const shown = root.querySelector(".taken")!.lastElementChild!;
    return [shown.textContent, shown.getAttribute("title")];
  };
  assert.deepEqual(await costs(0.25), ["$0.25", null]);
  const note = "Some calls reported no usage, so it is estimated.";
  assert.deepEqual(await costs(0.5, true), ["about $0.50", note]);
  assert.deepEqual(await costs(0.75), ["about $0.75", note]);
});

test("effort stands beside the model and is changed alone", async () => {
  const testSession = new TestSession();
  hide = showSession(testSession.live);
  const session = { id: "s1", title: "One", state: "idle", last_seq: 0, updated_at: "", created_at: "", model: "gpt-5", effort: "low" };
  testSession.receive({ status: "hello", session, last_seq: 0, state: "idle" });
  await renderText(<SessionHeader live={testSession.live} />);
  const model = () => root.querySelector(".model")!;
  assert.equal(model().textContent, "gpt-5 · low");
  assert.equal(model().getAttribute("aria-label"), "Model: gpt-5, effort low. Change");
  testSession.live.setEffort("high");
  assert.deepEqual(testSession.sent.map(({ id: _, ...request }) => request), [{ action: "initialize", args: { effort: "high" } }]);
  const script = new FrameScript().addAction("user", "set_model", { model: "gpt-5", effort: "high" });
  testSession.play(script);
  await settled();
  assert.equal(model().textContent, "gpt-5 · high");
  assert.deepEqual(rowsOf(testSession.live.state.peek()), ["quiet: Model: gpt-5, effort: High"]);
  testSession.play(script.addAction("user", "set_model", { model: "other" }));
  await settled();
  assert.equal(model().textContent, "other");
});
