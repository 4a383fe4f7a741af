// Status of a session: one table for every surface.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { activityOf, controlsOf, statusOfScreen } from "../src/state/activity";
import { statusOf, type StatusKind, type TabMark } from "../src/state/sessionStatus";
import type { AgentState } from "../src/wire/event";
import { FrameScript } from "./frameScript";

test("every state has one kind, label, mark and motion", () => {
  const check = (state: AgentState | null, reason: string | null, kind: StatusKind, label: string, mark: TabMark, isTicking: boolean) => {
    const status = statusOf({ state, reason });
    assert.deepEqual([status.kind, status.label, status.mark, status.isTicking], [kind, label, mark, isTicking], `${state} ${reason}`);
  };
  check(null, null, "unknown", "connecting", null, false);
  check("starting", null, "starting", "starting", "working", true);
  check("idle", null, "ready", "ready", null, false);
  check("idle", "failed", "turn_failed", "failed", "failed", false);
  check("idle", "budget", "budget_spent", "budget spent", null, false);
  check("idle", "quota", "quota_exceeded", "quota exceeded", null, false);
  check("running", null, "working", "working", "working", true);
  check("running", "failed", "working", "working", "working", true);
  check("awaiting_confirmation", null, "waiting", "waiting for you", "waiting", true);
  check("interrupting", null, "interrupting", "interrupting", "working", true);
  check("paused", null, "paused", "paused", null, false);
  check("paused", "nothing happened for 30 minutes", "paused", "paused", null, false);
  check("stopped", null, "stopped", "stopped", null, false);
  check("failed", "the sandbox is gone", "failed", "failed", "failed", false);
  check("ended", null, "ended", "ended", null, false);
  check("dancing" as AgentState, null, "unknown", "dancing", null, false);
});

test("nothing moves and no tab mark shows while the server is away, or in a recording", () => {
  for (const state of ["starting", "idle", "running", "awaiting_confirmation", "interrupting", "paused", "failed"] as const) {
    for (const source of ["away", "recording"] as const) {
      const { mark, isTicking } = statusOf({ state }, source);
      assert.deepEqual([mark, isTicking], [null, false], `${state} ${source}`);
    }
  }
  assert.equal(statusOf({ state: "running" }, "away").label, "last known: working");
  assert.equal(statusOf({ state: "running" }, "recording").label, "working");
  assert.equal(statusOf({ state: null }, "away").label, "connecting");
});

test("failed turn is known until the next turn, also while other work runs", () => {
  assert.equal(statusOf({ state: "idle", reason: "failed" }).hasFailedTurn, true);
  assert.equal(statusOf({ state: "running", reason: "failed" }).hasFailedTurn, true);
  assert.equal(statusOf({ state: "failed", reason: "the sandbox is gone" }).hasFailedTurn, false);
  assert.equal(statusOf({ state: "running" }).hasFailedTurn, false);
});

test("lost connection keeps tone, hint and controls in their places", () => {
  const lost = { local: "lost", retryAt: 0 } as const;
  const running = new FrameScript().addAction("agent", "run", { command: "make" }, { item: "r" }).state("running");
  const before = running.play();
  const after = running.push(lost).play();
  assert.deepEqual(activityOf(before), { tone: "busy", text: "Running", code: "make", since: "2026-01-01T00:00:01.000Z", pausedMs: undefined });
  assert.deepEqual(activityOf(after), { tone: "busy", text: "Last known: working", hint: undefined });
  assert.deepEqual(controlsOf(before), { resume: false, pause: true, interrupt: true, isDisabled: false });
  assert.deepEqual(controlsOf(after), { ...controlsOf(before), isDisabled: true });
  assert.equal(statusOfScreen(after).isTicking, false);
  const paused = new FrameScript().state("paused");
  const { tone, hint } = activityOf(paused.play());
  assert.deepEqual(activityOf(paused.push(lost).play()), { tone, hint, text: "Last known: paused" });
});

test("state line names an interrupt, a stopped sandbox and a paused queue by their words", () => {
  const text = (script: FrameScript) => activityOf(script.play()).text;
  assert.equal(text(new FrameScript().state("interrupting")), "Interrupting…");
  assert.equal(text(new FrameScript().state("stopped")), "Sandbox stopped");
  const queue = new FrameScript().state("idle").addObservation("queue", "", { items: [{ item: "m", content: "next" }] });
  assert.equal(text(queue), "Queue paused");
  assert.equal(text(new FrameScript().state("idle", "failed")), "Last turn failed");
});
