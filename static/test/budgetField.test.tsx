// Field for the session's budget.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { BudgetField } from "../src/components/BudgetField";
import { BudgetSpent } from "../src/components/BudgetSpent";
import { isBudgetSpent } from "../src/state/activity";
import { sessionDialog } from "../src/state/sessionDialog";
import type { Session } from "../src/wire/frame";
import { FrameScript, rowsOf } from "./frameScript";
import { press, renderText, root, TestSession, write } from "./testSession";

afterEach(() => render(null, root));

test("budget is set, removed and checked", async () => {
  const testSession = new TestSession();
  const session = { id: "s1", title: "One", state: "idle", last_seq: 0, updated_at: "", created_at: "", budget_usd: 1 } as Session;
  testSession.receive({ status: "hello", session, last_seq: 0, state: "idle" });
  await renderText(<BudgetField live={testSession.live} />);
  const isRejected = async (text: string) => {
    await write(text, "input");
    return root.querySelector("button")!.disabled;
  };
  assert.equal(root.querySelector("input")!.value, "1");
  for (const text of ["1", "much", "0", "-1"]) assert.ok(await isRejected(text), text);
  for (const text of ["2.5", ""]) {
    assert.ok(!(await isRejected(text)), text);
    press("Set");
  }
  const sent = testSession.live.state.value.pending.map(({ request }) => request);
  assert.deepEqual(sent, [
    { action: "set_budget", args: { usd: 2.5 } },
    { action: "set_budget", args: { usd: null } },
  ]);
});

test("spent budget offers a higher one, another model and the end", async () => {
  const testSession = new TestSession();
  const session = { id: "s1", title: "One", state: "idle", last_seq: 0, updated_at: "", created_at: "", budget_usd: 1 } as Session;
  testSession.receive({ status: "hello", session, last_seq: 0, state: "idle" });
  const script = new FrameScript();
  const isSpent = () => isBudgetSpent(testSession.live.state.value);
  testSession.play(script.addObservation("notice", "80 % spent", { code: "budget_low", detail: "80 % spent" }));
  assert.deepEqual([rowsOf(testSession.live.state.value), isSpent()], [["quiet: 80 % spent"], false]);
  testSession.play(script.addObservation("agent_state_changed", "", { agent_state: "idle", reason: "budget", since: "" }));
  assert.ok(isSpent());
  await renderText(<BudgetSpent live={testSession.live} />);
  const buttons = [...root.querySelectorAll("button")].map((button) => button.textContent);
  assert.deepEqual(buttons, ["Set", "Model…", "End…"]);
  press("End…");
  assert.equal(sessionDialog.value?.action, "end");
  testSession.play(script.addObservation("agent_state_changed", "", { agent_state: "idle", since: "" }));
  assert.ok(!isSpent());
});

test("spent budget of the server is not raised in a session", async () => {
  const testSession = new TestSession();
  const session = { id: "s1", title: "One", state: "idle", last_seq: 0, updated_at: "", created_at: "" } as Session;
  testSession.receive({ status: "hello", session, last_seq: 0, state: "idle" });
  await renderText(<BudgetSpent live={testSession.live} />);
  const buttons = [...root.querySelectorAll("button")].map((button) => button.textContent);
  assert.deepEqual(buttons, ["Model…", "End…"]);
});

test("budget change is shown", () => {
  const testSession = new TestSession();
  const session = { id: "s1", title: "One", state: "idle", last_seq: 0, updated_at: "", created_at: "", budget_usd: 1 } as Session;
  testSession.receive({ status: "hello", session, last_seq: 0, state: "idle" });
  const script = new FrameScript().addAction("user", "set_budget", { usd: 2.5 });
  testSession.play(script);
  const { state } = testSession.live;
  assert.deepEqual([rowsOf(state.value), state.value.session?.budget_usd], [["quiet: Budget: $2.50"], 2.5]);
  testSession.play(script.addAction("user", "set_budget", { usd: null }));
  assert.equal(state.value.session?.budget_usd, null);
});
