// What the header of a session says, and what it leaves out.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { render } from "preact";
import { SessionHeader } from "../src/components/SessionHeader";
import { show } from "../src/state/current";
import { learn } from "../src/state/list";
import type { Session } from "../src/wire/frame";
import { Script } from "./frames";
import { root, shown, Stage } from "./stage";

let hide = () => {};
beforeEach(() => hide());
afterEach(() => render(null, root));

/** The header after a call of the model that took so much. */
async function header(usage: { used: number; usd: number | null; model?: string }): Promise<string> {
  const stage = new Stage();
  hide = show(stage.live);
  const { used, usd, model = "gpt-5" } = usage;
  const call = { model, input_tokens: used, output_tokens: 0, cost_usd: usd };
  const total = { total_input_tokens: used, total_output_tokens: 0, total_cost_usd: usd };
  stage.play(new Script().see("usage", "", { ...call, ...total, context_used: used, context_limit: 1000 }));
  await shown(<SessionHeader live={stage.live} />);
  return root.querySelector(".taken")!.textContent!;
}
const meter = () => root.querySelector("[role=meter]");

test("what is zero is not shown", async () => {
  assert.equal(await header({ used: 0, usd: 0 }), "");
  assert.equal(meter(), null);
  assert.equal(await header({ used: 100, usd: 0 }), "100 tokens");
  assert.equal(await header({ used: 100, usd: null }), "100 tokens", "nor what nobody knows");
  assert.equal(await header({ used: 100, usd: 0.25 }), "100 tokens$0.25");
});

test("a call without a price takes nothing back of what is known", async () => {
  const call = { model: "gpt-5", input_tokens: 1, output_tokens: 0, total_input_tokens: 1, total_output_tokens: 0, context_used: 0, context_limit: null };
  const stage = new Stage();
  hide = show(stage.live);
  const session = { id: "s1", title: "One", state: "idle", last_seq: 0, updated_at: "", created_at: "", budget_usd: 1 } as Session;
  const usage = { input_tokens: 1, output_tokens: 0 };
  const script = new Script();
  stage.say({ status: "hello", session: { ...session, usage: { ...usage, cost_usd: 0.1 } }, last_seq: 0, state: "idle" });
  const says = async (event: { cost_usd: number | null; total_cost_usd: number | null; known_cost_usd?: number }) => {
    stage.play(script.see("usage", "", { ...call, ...event }));
    await shown(<SessionHeader live={stage.live} />);
    return [root.querySelector(".taken")!.lastElementChild!.textContent, meter()!.getAttribute("aria-label")];
  };
  assert.deepEqual(await says({ cost_usd: 0.5, total_cost_usd: 0.5 }), ["$0.50", "Budget: $0.50 of $1.00 spent"]);
  assert.deepEqual(await says({ cost_usd: null, total_cost_usd: null }), ["$0.50 + ?", "Budget: $0.50 + ? of $1.00 spent"]);
  assert.equal(root.querySelector(".taken")!.lastElementChild!.getAttribute("title"), "The price of some calls is not known");
  assert.equal((await says({ cost_usd: 0.1, total_cost_usd: null, known_cost_usd: 0.6 }))[0], "$0.60 + ?");
  learn([{ ...session, last_seq: 9, usage: { ...usage, cost_usd: null, known_cost_usd: 0.75 } }]);
  assert.equal((await says({ cost_usd: 0.1, total_cost_usd: null }))[0], "$0.75 + ?", "REST knows it");
  learn([{ ...session, last_seq: 3, usage: { ...usage, cost_usd: 0.5 } }]);
  assert.equal((await says({ cost_usd: null, total_cost_usd: null }))[0], "$0.75 + ?", "an answer that comes late is older");
});

test("the meter of the context has its word from half full on, and its name always", async () => {
  assert.doesNotMatch(await header({ used: 500, usd: 0 }), /Context/);
  assert.equal(meter()!.getAttribute("aria-label"), "Context: 500 of 1.0k tokens");
  assert.match(await header({ used: 501, usd: 0 }), /^Context/);
  assert.equal(root.querySelector(".nearly-full"), null);
  await header({ used: 900, usd: 0 });
  assert.ok(root.querySelector(".nearly-full"));
});

test("a demo is called one, and explained", async () => {
  await header({ used: 1, usd: 0, model: "demo" });
  const model = root.querySelector(".model")!;
  assert.equal(model.textContent, "scripted demo");
  assert.match(model.getAttribute("aria-label")!, /scripted demo. It plays a script, nobody thinks/);
});
