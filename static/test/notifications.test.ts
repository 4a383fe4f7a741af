import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { showSession } from "../src/state/currentSession";
import { refreshSessions } from "../src/state/sessionList";
import { newsOf, stateBefore } from "../src/state/notifications";
import { notificationsOn } from "../src/state/notificationSetting";
import { parseRoute } from "../src/route";
import type { Session } from "../src/wire/frame";
import { FrameScript } from "./frameScript";
import { TestSession } from "./testSession";

test("state changes that notify", () => {
  assert.equal(newsOf("running", "idle"), "done");
  assert.equal(newsOf("running", "awaiting_confirmation"), "waits");
  assert.equal(newsOf("idle", "failed"), "failed");
  assert.equal(newsOf("interrupting", "idle"), null, "the user stopped the turn");
  assert.equal(newsOf("running", "paused"), null);
  assert.equal(newsOf(undefined, "awaiting_confirmation"), null, "the page has just opened");
  assert.equal(newsOf("idle", "idle"), null);
});

test("session started since then notifies, one merely unseen before does not", () => {
  const known = new Map([["01B", "running" as const]]);
  assert.equal(stateBefore("01B", known, "01B"), "running");
  assert.equal(stateBefore("01C", known, "01B"), "starting");
  assert.equal(stateBefore("01A", known, "01B"), undefined, "below the newest in the list");
  assert.equal(stateBefore("01C", known, undefined), undefined, "no list has arrived yet");
  assert.equal(newsOf(stateBefore("01C", known, "01B"), "awaiting_confirmation"), "waits");
});

test("leaving a session does not notify about seen changes", async () => {
  const told: string[] = [];
  Object.assign(globalThis, {
    Notification: class {
      constructor(title: string) {
        told.push(title);
      }
    },
  });
  notificationsOn.value = true;
  const lists = (state: Session["state"], last_seq: number) => {
    const items = [{ id: "s1", title: "Work", state, last_seq }];
    globalThis.fetch = async () => new Response(JSON.stringify({ items, next_cursor: null, total: 1 }));
    return refreshSessions();
  };
  const script = new FrameScript().state("running").state("awaiting_confirmation");
  const testSession = new TestSession();
  testSession.play(script);
  testSession.receive({ status: "synced", seq: 2 });
  const hide = showSession(testSession.live);
  await lists("awaiting_confirmation", 2);
  told.length = 0;
  const asked = lists("awaiting_confirmation", 2);
  testSession.play(script.state("running"));
  hide();
  assert.deepEqual(told, [], "the user has answered");
  await asked;
  assert.deepEqual(told, [], "requested before the answer");
  await lists("idle", 4);
  assert.deepEqual(told, ["Work is done"]);
  notificationsOn.value = false;
});

test("routes of addresses", () => {
  const check = (path: string, search: string, expected: object) => assert.deepEqual(parseRoute(path, search), expected);
  check("/", "", { page: "home" });
  check("/sessions", "", { page: "home" });
  check("/sessions/01J", "", { page: "session", id: "01J" });
  check("/sessions/01J/more", "", { page: "unknown" });
  check("/admin", "", { page: "admin" });
  check("/sessions", "replay=/api/x", { page: "recording", file: "/api/x" });
  check("/sessions", "replay", { page: "recording", file: "" });
});
