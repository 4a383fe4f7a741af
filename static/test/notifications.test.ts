import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { show } from "../src/state/current";
import { refreshSessions } from "../src/state/list";
import { newsOf, stateBefore } from "../src/state/notify";
import { notifying } from "../src/state/notifying";
import { parseRoute } from "../src/route";
import type { Session } from "../src/wire/frame";
import { Script } from "./frames";
import { Stage } from "./stage";

test("what is worth a notification", () => {
  assert.equal(newsOf("running", "idle"), "done");
  assert.equal(newsOf("running", "awaiting_confirmation"), "waits");
  assert.equal(newsOf("idle", "failed"), "failed");
  assert.equal(newsOf("interrupting", "idle"), null, "the person stopped it and knows");
  assert.equal(newsOf("running", "paused"), null);
  assert.equal(newsOf(undefined, "awaiting_confirmation"), null, "the page has only just opened");
  assert.equal(newsOf("idle", "idle"), null);
});

test("a session that was started since is told of, one that was only not seen before is not", () => {
  const known = new Map([["01B", "running" as const]]);
  assert.equal(stateBefore("01B", known, "01B"), "running");
  assert.equal(stateBefore("01C", known, "01B"), "starting");
  assert.equal(stateBefore("01A", known, "01B"), undefined, "further down the list");
  assert.equal(stateBefore("01C", known, undefined), undefined, "there was no list yet");
  assert.equal(newsOf(stateBefore("01C", known, "01B"), "awaiting_confirmation"), "waits");
});

test("who leaves a session is not told what they have seen there", async () => {
  const told: string[] = [];
  Object.assign(globalThis, {
    Notification: class {
      constructor(title: string) {
        told.push(title);
      }
    },
  });
  notifying.value = true;
  const lists = (state: Session["state"], last_seq: number) => {
    const items = [{ id: "s1", title: "Work", state, last_seq }];
    globalThis.fetch = async () => new Response(JSON.stringify({ items, next_cursor: null, total: 1 }));
    return refreshSessions();
  };
  const script = new Script().state("running").state("awaiting_confirmation");
  const stage = new Stage();
  stage.play(script);
  stage.say({ status: "synced", seq: 2 });
  const hide = show(stage.live);
  await lists("awaiting_confirmation", 2);
  told.length = 0;
  const asked = lists("awaiting_confirmation", 2);
  stage.play(script.state("running"));
  hide();
  assert.deepEqual(told, [], "they have answered");
  await asked;
  assert.deepEqual(told, [], "that was asked for before they did");
  await lists("idle", 4);
  assert.deepEqual(told, ["Work is done"]);
  notifying.value = false;
});

test("addresses", () => {
  const check = (path: string, search: string, expected: object) => assert.deepEqual(parseRoute(path, search), expected);
  check("/", "", { page: "home" });
  check("/sessions", "", { page: "home" });
  check("/sessions/01J", "", { page: "session", id: "01J" });
  check("/sessions/01J/more", "", { page: "unknown" });
  check("/admin", "", { page: "admin" });
  check("/sessions", "replay=/api/x", { page: "recording", file: "/api/x" });
  check("/sessions", "replay", { page: "recording", file: "" });
});
