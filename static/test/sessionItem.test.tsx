// List entry of a session.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { SessionItem } from "../src/components/SessionItem";
import { options } from "../src/state/serverOptions";
import { listError } from "../src/state/sessionList";
import type { ServerOptions } from "../src/wire/rest";
import type { Session } from "../src/wire/frame";
import { root, renderText, settled } from "./testSession";

const made = { agent: "greenroom", model: "demo" };

afterEach(() => render(null, root));

/** Returns the line below the title. */
async function lineBelowTitle(session: Partial<Session>): Promise<string> {
  const usage = { input_tokens: 1, output_tokens: 1, cost_usd: 0 };
  const whole = { id: "s", title: "One", state: "idle", updated_at: "2026-01-01T00:00:00Z", ...made, usage, ...session } as Session;
  await renderText(<SessionItem session={whole} current={false} />);
  return [...root.querySelectorAll(".session-facts > *")].map((fact) => fact.textContent).join(" | ");
}

test("entry shows the newest thing that the session did", async () => {
  assert.equal(await lineBelowTitle({ latest: "$ cargo test" }), "$ cargo test");
  assert.equal(await lineBelowTitle({ latest: "busy", reason: "failed" }), "failed | busy");
  assert.equal(root.querySelector(".dot")!.getAttribute("aria-label"), "failed");
  assert.equal(await lineBelowTitle({ latest: "the sandbox is gone", state: "failed", reason: "the sandbox is gone" }), "failed | the sandbox is gone");
});

test("marks of a list stand still while the server is away or the session is paused", async () => {
  const dot = () => [root.querySelector(".dot")!.classList.contains("ticking"), root.querySelector(".dot")!.getAttribute("aria-label")];
  await lineBelowTitle({ state: "running" });
  assert.deepEqual(dot(), [true, "working"]);
  listError.value = "no reply from the server";
  await settled();
  assert.deepEqual(dot(), [false, "last known: working"]);
  listError.value = null;
  await lineBelowTitle({ state: "paused" });
  assert.deepEqual(dot(), [false, "paused"]);
});

test("entry names the agent only if the server offers more than one", async () => {
  const offered = (...names: string[]) => ({ agents: names.map((name) => ({ name })), models: [] }) as unknown as ServerOptions;
  options.value = offered("greenroom");
  assert.equal(await lineBelowTitle({}), "demo");
  assert.equal(await lineBelowTitle({ agent: "goose" }), "goose · demo", "an agent of an earlier configuration");
  options.value = offered("greenroom", "goose");
  assert.equal(await lineBelowTitle({}), "greenroom · demo");
  options.value = null;
});

test("entry shows model and a cost above zero before anything happened", async () => {
  const priced = { input_tokens: 1, output_tokens: 1, cost_usd: 0.514 };
  assert.equal(await lineBelowTitle({}), "demo");
  assert.equal(await lineBelowTitle({ model: "gpt-5", usage: priced }), "gpt-5 | $0.51");
  assert.equal(await lineBelowTitle({ model: null }), "");
  const partly = { input_tokens: 1, output_tokens: 1, cost_usd: null, known_cost_usd: 0.25 };
  assert.equal(await lineBelowTitle({ usage: partly }), "demo | $0.25 + price unknown");
  assert.match(root.querySelector("a")!.title, /\$0\.25 \+ price unknown\nSome calls have no known price\.$/);
  assert.equal(await lineBelowTitle({ usage: { ...partly, known_cost_usd: 0 } }), "demo | price unknown");
  assert.equal(await lineBelowTitle({ state: "awaiting_confirmation" }), "waits for you | demo");
});

test("entry is readable and audible, with one attention mark", async () => {
  await lineBelowTitle({ state: "awaiting_confirmation" });
  const link = root.querySelector("a")!;
  assert.equal(link.title, "One\ndemo");
  assert.deepEqual([...root.querySelectorAll("[role=img]")].map((mark) => mark.getAttribute("aria-label")), ["waiting for you"]);
  assert.equal(root.querySelector(".attention"), null);
});
