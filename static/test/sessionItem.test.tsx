// What the list says of a session.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { SessionItem } from "../src/components/SessionItem";
import type { Session } from "../src/wire/frame";
import { root, shown } from "./stage";

const made = { agent: "greenroom", model: "demo" };

afterEach(() => render(null, root));

/** What stands below the title of a session. */
async function below(session: Partial<Session>): Promise<string> {
  const usage = { input_tokens: 1, output_tokens: 1, cost_usd: 0 };
  const whole = { id: "s", title: "One", state: "idle", updated_at: "2026-01-01T00:00:00Z", ...made, usage, ...session } as Session;
  await shown(<SessionItem session={whole} current={false} />);
  return [...root.querySelectorAll(".session-waits, .session-facts > *")].map((fact) => fact.textContent).join(" | ");
}

test("an item says who works on it, and what it cost where it cost something", async () => {
  const priced = { input_tokens: 1, output_tokens: 1, cost_usd: 0.514 };
  assert.equal(await below({}), "greenroom · demo");
  assert.equal(await below({ agent: "other", model: "gpt-5", usage: priced }), "other · gpt-5 | $0.51");
  assert.equal(await below({ model: null }), "greenroom");
  const partly = { input_tokens: 1, output_tokens: 1, cost_usd: null, known_cost_usd: 0.25 };
  assert.equal(await below({ usage: partly }), "greenroom · demo | $0.25 + ?");
  assert.match(root.querySelector("a")!.title, /\$0\.25 \+ \?\nThe price of some calls is not known$/);
  assert.equal(await below({ usage: { ...partly, known_cost_usd: 0 } }), "greenroom · demo", "nor what nobody knows");
  assert.equal(await below({ state: "awaiting_confirmation" }), "waits for you | greenroom · demo");
});

test("all of it can be read and heard, and one mark says that somebody is needed", async () => {
  await below({ state: "awaiting_confirmation" });
  const link = root.querySelector("a")!;
  assert.equal(link.title, "One\ngreenroom · demo");
  assert.deepEqual([...root.querySelectorAll("[role=img]")].map((mark) => mark.getAttribute("aria-label")), ["waiting for you"]);
  assert.equal(root.querySelector(".attention"), null);
});
