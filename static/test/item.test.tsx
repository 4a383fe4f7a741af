// What the list says of a session.

import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { SessionItem } from "../src/components/SessionItem";
import { options } from "../src/state/options";
import type { Session } from "../src/wire/frame";
import type { Options } from "../src/wire/rest";
import { root, shown } from "./stage";

const usual = { agent: "greenroom", model: "demo" };
options.value = { defaults: { ...usual, image: "" } } as Options;

afterEach(() => render(null, root));

/** The second line of a session's item, and whether there is one. */
async function second(session: Partial<Session>): Promise<string | undefined> {
  const usage = { input_tokens: 1, output_tokens: 1, cost_usd: 0 };
  const whole = { id: "s", title: "One", state: "idle", updated_at: "2026-01-01T00:00:00Z", ...usual, usage, ...session } as Session;
  await shown(<SessionItem session={whole} current={false} />);
  const line = root.querySelector(".session-facts");
  return line ? [...line.children].map((fact) => fact.textContent).join(" · ") : undefined;
}

test("only what is not as usual has a line of its own", async () => {
  const priced = { input_tokens: 1, output_tokens: 1, cost_usd: 0.514 };
  assert.equal(await second({}), undefined);
  assert.equal(await second({ model: "gpt-5" }), "gpt-5");
  assert.equal(await second({ agent: "other", usage: priced }), "other · $0.51");
  assert.equal(await second({ state: "awaiting_confirmation", model: "gpt-5" }), "waits for you · gpt-5");
});

test("all of it can be read and heard, and one mark says that somebody is needed", async () => {
  await second({ state: "awaiting_confirmation" });
  const link = root.querySelector("a")!;
  assert.equal(link.title, "One\ngreenroom · demo");
  assert.match(link.textContent!, /greenroom · demo/);
  assert.deepEqual([...root.querySelectorAll("[role=img]")].map((mark) => mark.getAttribute("aria-label")), ["waiting for you"]);
  assert.equal(root.querySelector(".attention"), null);
});
