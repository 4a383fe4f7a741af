import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { showSession } from "../src/state/currentSession";
import { refreshSessions } from "../src/state/sessionList";
import { newsOf, statusBefore, type SessionNews } from "../src/state/notifications";
import { notificationsOn } from "../src/state/notificationSetting";
import { parseRoute } from "../src/route";
import { statusOf, type SessionStatus } from "../src/state/sessionStatus";
import type { AgentState } from "../src/wire/event";
import type { Session } from "../src/wire/frame";
import { FrameScript } from "./frameScript";
import { TestSession } from "./testSession";

const status = (state: AgentState, reason?: string) => statusOf({ state, reason });

test("status changes that notify", () => {
  const check = (before: SessionStatus | undefined, after: SessionStatus, news: SessionNews | null, why?: string) =>
    assert.equal(newsOf(before, after), news, why);
  check(status("running"), status("idle"), "done");
  check(status("running"), status("idle", "failed"), "failed");
  check(status("running"), status("idle", "budget"), "done");
  check(status("running"), status("awaiting_confirmation"), "waits");
  check(status("running"), status("failed", "the sandbox is gone"), "failed", "the turn is cut");
  check(status("starting"), status("idle", "failed"), "failed");
  check(status("starting"), status("idle"), null);
  check(status("idle"), status("failed", "the sandbox is gone"), null, "no turn ran");
  check(status("interrupting"), status("idle"), null, "the user interrupted the turn");
  check(status("running"), status("paused"), null);
  check(status("paused"), status("idle", "failed"), null, "the failure is older");
  check(undefined, status("awaiting_confirmation"), null, "the page has just opened");
  check(undefined, status("idle", "failed"), null, "the page has just opened");
  check(status("idle"), status("idle"), null);
});

test("failed turn notifies once, also after the user's own commands", () => {
  const path: [AgentState, string?][] = [
    ["running"],
    ["idle", "failed"],
    ["running", "failed"],
    ["idle", "failed"],
    ["paused"],
    ["idle", "failed"],
    ["failed", "the sandbox is gone"],
    ["starting", "failed"],
    ["idle", "failed"],
    ["running"],
    ["idle", "failed"],
  ];
  const news = path.slice(1).map(([state, reason], at) => newsOf(status(...path[at]!), status(state, reason)));
  assert.deepEqual(news.flatMap((one, at) => (one ? [`${at} ${one}`] : [])), ["0 failed", "9 failed"]);
});

test("session started since then notifies, one merely unseen before does not", () => {
  const known = new Map([["01B", status("running")]]);
  assert.equal(statusBefore("01B", known, "01B")?.kind, "working");
  assert.equal(statusBefore("01C", known, "01B")?.kind, "starting");
  assert.equal(statusBefore("01A", known, "01B"), undefined, "below the newest in the list");
  assert.equal(statusBefore("01C", known, undefined), undefined, "no list has arrived yet");
  assert.equal(newsOf(statusBefore("01C", known, "01B"), status("awaiting_confirmation")), "waits");
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
