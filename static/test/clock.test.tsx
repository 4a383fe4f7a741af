// Clocks of running work count on the server's clock, and stand still in a pause.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { serverNow, syncClock } from "../src/clock";
import { CommandsTab } from "../src/components/CommandsTab";
import { RunningTime, WorkClockContext } from "../src/components/RunningTime";
import { SessionView } from "../src/components/SessionView";
import { Chat } from "../src/components/Chat";
import { StateLine } from "../src/components/StateLine";
import { showSession } from "../src/state/currentSession";
import { FrameScript } from "./frameScript";
import { renderText, root, settled, TestSession } from "./testSession";

afterEach(() => render(null, root));

const HOUR_MS = 3_600_000;
const ago = (ms: number) => new Date(serverNow()! - ms).toISOString();

test("first frame sets the clock, whatever the browser's clock is", async () => {
  assert.equal(serverNow(), null);
  assert.equal(await renderText(<RunningTime since={new Date().toISOString()} />), "", "unknown until then");
  for (const offset of [-HOUR_MS, HOUR_MS]) {
    const server = Date.now() + offset;
    new TestSession().receive({ status: "hello", session: null, last_seq: 0, state: null, now: new Date(server).toISOString() });
    assert.ok(Math.abs(serverNow()! - server) < 1000);
    assert.equal(await renderText(<RunningTime since={ago(12_000)} />), "12 s");
  }
  assert.equal(await renderText(<RunningTime since={ago(-5000)} />), "", "never negative");
});

test("a date of REST is rough, and no time at all changes nothing", () => {
  const exact = Date.now() + HOUR_MS;
  syncClock(new Date(exact).toISOString());
  syncClock("Thu, 01 Jan 2026 00:00:00 GMT", "rough");
  syncClock(null);
  syncClock("nonsense");
  assert.ok(Math.abs(serverNow()! - exact) < 1000);
});

test("hello of a recording does not set the clock", () => {
  const before = serverNow()!;
  const session = new TestSession();
  session.live.rewind();
  session.receive({ status: "hello", session: null, last_seq: 0, state: null, now: "2020-01-01T00:00:00.000Z" });
  assert.ok(Math.abs(serverNow()! - before) < 1000);
});

test("finished pauses are left out, and a paused clock is absent", async () => {
  assert.equal(await renderText(<RunningTime since={ago(60_000)} pausedMs={48_000} />), "12 s");
  const paused = { isTicking: false, label: "paused" };
  assert.equal(await renderText(<WorkClockContext.Provider value={paused}><RunningTime since={ago(60_000)} /></WorkClockContext.Provider>), "");
});

test("no spinner turns and no clock runs on a paused or disconnected page", async () => {
  const session = new TestSession();
  const hide = showSession(session.live);
  session.listener.opened();
  const script = new FrameScript().state("running").addAction("agent", "run", { command: "make" }, { item: "r" });
  const since = new Date(Date.parse("2026-01-01T00:00:02.000Z") + 12_000).toISOString();
  session.receive({ status: "hello", session: null, last_seq: 0, state: null, now: since }, ...script.frames.splice(0), { status: "synced", seq: 2 });
  const view = () => (
    <SessionView live={session.live} header={null} chat={<><Chat live={session.live} /><CommandsTab live={session.live} /><StateLine live={session.live} /></>} />
  );
  const moving = () => [root.querySelectorAll(".spinner:not(.still)").length, root.querySelectorAll(".clock").length, root.querySelector(".session.still") !== null];
  await renderText(view());
  assert.deepEqual(moving(), [2, 3, false]);
  session.play(script.state("paused"));
  await settled();
  assert.deepEqual(moving(), [0, 0, true]);
  script.frames.length = 0;
  session.play(script.state("running"));
  await settled();
  assert.deepEqual(moving(), [2, 3, false]);
  session.listener.lost(0);
  await settled();
  assert.deepEqual(moving(), [0, 0, true]);
  assert.equal(root.querySelector(".state-text")?.textContent, "Last known: working");
  const buttons = [...root.querySelectorAll<HTMLButtonElement>(".controls button")];
  assert.deepEqual(buttons.map((one) => [one.textContent?.trim(), one.disabled]), [["Pause", true], ["Interrupt", true]]);
  hide();
});
