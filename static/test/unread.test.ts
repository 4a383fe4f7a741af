// Unread marks of the session list.

import "./testWindow";
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { showSession } from "../src/state/currentSession";
import "../src/state/seenSessions";
import { newest } from "../src/state/sessionList";
import { isUnread } from "../src/state/unread";
import type { Session } from "../src/wire/frame";
import { FrameScript } from "./frameScript";
import { TestSession } from "./testSession";

const session = (id: string, latest_seq: number | null, created_at = "2026-01-01T00:00:00.000Z") => ({ id, latest_seq, created_at }) as Session;

let hidden = false;
Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });

function setHidden(to: boolean): void {
  hidden = to;
  document.dispatchEvent(new window.Event("visibilitychange"));
}

beforeEach(() => {
  setHidden(false);
  localStorage.clear();
  newest.value = null;
});

test("session that did something since it was shown is unread until shown again", () => {
  newest.value = [session("s1", 4), session("s2", 4)];
  assert.deepEqual([session("s1", 4), session("s1", 5), session("s2", 3)].map(isUnread), [false, true, false]);
  const shown = new TestSession();
  const hide = showSession(shown.live);
  shown.play(new FrameScript().state("running").state("idle"));
  assert.equal(localStorage.getItem("greenroom.seen.s1"), "4", "the replay is not over");
  assert.equal(isUnread(session("s1", 5)), false, "it is on the screen");
  const script = new FrameScript();
  for (let seq = 0; seq < 5; seq += 1) script.state("running");
  shown.play(script);
  shown.receive({ status: "synced", seq: 5 });
  hide();
  assert.deepEqual([session("s1", 5), session("s1", 6)].map(isUnread), [false, true]);
});

test("first list counts as seen, and a newer session as unread", () => {
  assert.equal(isUnread(session("s1", 4)), false, "no list has arrived yet");
  newest.value = [session("s1", 4), session("s2", null)];
  assert.equal(isUnread(session("s2", 2)), true, "it did nothing before the list");
  assert.equal(isUnread(session("old", 9)), false, "a session beyond the first list");
  assert.equal(isUnread(session("new", 2, "2026-01-02T00:00:00.000Z")), true);
  assert.equal(isUnread(session("new", null, "2026-01-02T00:00:00.000Z")), false, "it has done nothing");
});

test("hidden page marks nothing as seen", () => {
  newest.value = [session("s1", 0)];
  setHidden(true);
  const shown = new TestSession();
  const hide = showSession(shown.live);
  shown.play(new FrameScript().state("running"));
  shown.receive({ status: "synced", seq: 1 });
  assert.equal(localStorage.getItem("greenroom.seen.s1"), "0");
  setHidden(false);
  assert.equal(localStorage.getItem("greenroom.seen.s1"), "1");
  hide();
});

test("mark of another tab counts", () => {
  newest.value = [session("s1", 4)];
  assert.equal(isUnread(session("s1", 6)), true);
  localStorage.setItem("greenroom.seen.s1", "6");
  window.dispatchEvent(Object.assign(new window.Event("storage"), { key: "greenroom.seen.s1" }));
  assert.equal(isUnread(session("s1", 6)), false);
});
