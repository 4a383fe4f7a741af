// Processes that commands left behind.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { Leftovers } from "../src/components/Leftovers";
import type { Session } from "../src/wire/frame";
import { FrameScript } from "./frameScript";
import { press, renderText, root, TestSession } from "./testSession";

afterEach(() => render(null, root));

function idleSession(): TestSession {
  const testSession = new TestSession();
  const session = { id: "s1", title: "One", state: "idle", last_seq: 0, updated_at: "", created_at: "", budget_usd: null } as Session;
  testSession.receive({ status: "hello", session, last_seq: 0, state: "idle" });
  return testSession;
}

const process = { pid: 7, name: "sleep <b>1000</b>", age_s: 90, memory_bytes: 2_000_000 };

test("each process can be ended, and all together while idle", async () => {
  const testSession = idleSession();
  const script = new FrameScript();
  testSession.play(script.addObservation("commands", "", { items: [process], more: 3 }));
  const text = await renderText(<Leftovers live={testSession.live} />);
  for (const part of ["sleep <b>1000</b>", "7 ·", "1.9 MiB", "and 3 more"]) assert.ok(text.includes(part), text);
  press("End process 7");
  press("End all");
  const sent = testSession.live.state.value.pending.map(({ request }) => request);
  assert.deepEqual(sent, [{ action: "kill_process", args: { pid: 7 } }, { action: "interrupt" }]);
  testSession.play(script.addObservation("agent_state_changed", "", { agent_state: "running", since: "" }));
  await renderText(<Leftovers live={testSession.live} />);
  assert.ok(!root.textContent?.includes("End all"), "an interrupt would stop the turn");
});

test("list ends with the processes and with their sandbox", async () => {
  const testSession = idleSession();
  const script = new FrameScript();
  const leftovers = () => testSession.live.state.value.leftovers;
  for (const end of [
    () => script.addObservation("commands", "", { items: [] }),
    () => script.addObservation("agent_state_changed", "", { agent_state: "stopped", since: "" }),
  ]) {
    testSession.play(script.addObservation("commands", "", { items: [process] }));
    assert.equal(leftovers()?.items.length, 1);
    testSession.play(end());
    assert.equal(leftovers(), null);
  }
  assert.equal(await renderText(<Leftovers live={testSession.live} />), "");
});
